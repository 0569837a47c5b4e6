//! The loop of one WebSocket.
//!
//! The loop polls operations only while the outbox has space. A slow client slows its own
//! operations down and misses nothing.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Error,
    extract::ws::{Message, WebSocket},
};
use futures::{
    Sink, SinkExt as _, StreamExt as _,
    future::poll_fn,
    stream::{self, Abortable, BoxStream, SelectAll, SplitSink, SplitStream},
};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use super::{
    super::{
        app::{App, Caller},
        entry::Handshake,
        metrics::GaugeGuard,
        refusal::Refusal,
    },
    close::{Closing, close_halves},
    message::Subprotocol,
    session::{Effect, Output, Session},
};

/// Maximum number of messages in the outbox. Messages that are ready together leave in one write.
const OUTBOX_LEN: usize = 32;

/// Keep-alive intervals after which a silent client is disconnected.
const SILENT_INTERVALS: u32 = 3;

/// Timeout of a close, including the messages before it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(4);

/// An output with the id of its operation.
type Tagged = (Arc<str>, Output);

pub(super) struct Connection {
    app: Arc<App>,
    opening: Handshake,
    /// Set after `connection_init`.
    caller: Arc<Caller>,
    session: Session,
    operations: SelectAll<BoxStream<'static, Tagged>>,
    incoming: SplitStream<WebSocket>,
    outbox: Outbox,
    clock: Clock,
    _open: GaugeGuard,
}

enum Input {
    Received(Option<Result<Message, Error>>),
    /// `None` if all operations were stopped.
    Given(Option<Tagged>),
    Written(Result<(), Error>),
    InitTimeout,
    Tick,
    Stop,
}

/// The end of the loop: a close by the server, or `None` if the client is gone.
type ConnectionEnd = Option<Closing>;

impl Connection {
    pub(super) fn new(
        app: Arc<App>,
        socket: WebSocket,
        protocol: Subprotocol,
        caller: Handshake,
    ) -> Self {
        let (sink, incoming) = socket.split();
        let options = &app.options;
        Self {
            caller: Arc::default(),
            opening: caller,
            session: Session::new(protocol, options.max_operations, options.max_body_bytes),
            operations: SelectAll::new(),
            incoming,
            outbox: Outbox { sink, waiting: VecDeque::new(), unwritten: false },
            clock: Clock::new(options.init_timeout, options.keep_alive),
            _open: app.metrics.websocket(),
            app,
        }
    }

    /// Runs until either side closes.
    pub(super) async fn run(mut self) {
        let end = loop {
            let input = self.next().await;
            if let ControlFlow::Break(end) = self.handle(input) {
                break end;
            }
        };
        let Self { operations, incoming, outbox, .. } = self;
        drop(operations);
        outbox.close(incoming, end).await;
    }

    async fn next(&mut self) -> Input {
        let has_room = self.outbox.has_room();
        tokio::select! {
            biased;
            () = self.app.stopping.cancelled() => Input::Stop,
            received = self.incoming.next(), if has_room => Input::Received(received),
            given = self.operations.next(), if has_room && !self.operations.is_empty() => {
                Input::Given(given)
            }
            written = self.outbox.write(), if self.outbox.unwritten => Input::Written(written),
            () = sleep_until(self.clock.init_until), if !self.session.is_acknowledged() => {
                Input::InitTimeout
            }
            _ = self.clock.ticks.tick() => Input::Tick,
        }
    }

    fn handle(&mut self, input: Input) -> ControlFlow<ConnectionEnd> {
        match input {
            Input::Stop => ControlFlow::Break(Some(Closing::going_away())),
            Input::InitTimeout => ControlFlow::Break(Some(Closing::init_timeout())),
            Input::Received(received) => self.on_received(received),
            Input::Given(None) => ControlFlow::Continue(()),
            Input::Given(Some((id, output))) => {
                let effect = self.session.on_output(&id, output);
                self.carry_out(effect)
            }
            Input::Written(Ok(())) => {
                self.clock.written = Instant::now();
                ControlFlow::Continue(())
            }
            Input::Written(Err(_)) => ControlFlow::Break(None),
            Input::Tick => self.on_tick(),
        }
    }

    fn on_received(
        &mut self,
        received: Option<Result<Message, Error>>,
    ) -> ControlFlow<ConnectionEnd> {
        self.clock.heard = Instant::now();
        match received {
            Some(Ok(Message::Text(text))) => {
                let effects = self.session.on_message(&text);
                self.carry_out(effects)
            }
            Some(Ok(Message::Binary(_))) => {
                ControlFlow::Break(Some(Closing::invalid_message("messages must be text")))
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {
                // The pong is queued already, but only a write sends it.
                self.outbox.unwritten = true;
                ControlFlow::Continue(())
            }
            Some(Ok(Message::Close(_))) | None => ControlFlow::Break(None),
            Some(Err(error)) => {
                tracing::debug!(%error, "a WebSocket failed, or a message was far too large");
                ControlFlow::Break(Some(Closing::too_big(self.app.options.max_body_bytes)))
            }
        }
    }

    fn carry_out(
        &mut self,
        effects: impl IntoIterator<Item = Effect>,
    ) -> ControlFlow<ConnectionEnd> {
        for effect in effects {
            match effect {
                Effect::Greet(init) => match self.opening.greet(&self.app.options.access, init) {
                    Ok(caller) => self.caller = Arc::new(caller),
                    Err(refusal) => return self.reject_caller(refusal),
                },
                Effect::Send(text) => self.send(Message::Text(text.into())),
                Effect::Start { id, operation, abort } => {
                    let id: Arc<str> = id.into();
                    let answers = operation.stream(&self.app, &self.caller);
                    let answers = answers.map(|outcome| Output::Answer(Box::new(outcome)));
                    let outputs = answers.chain(stream::once(async { Output::End }));
                    let tagged = outputs.map(move |output| (Arc::clone(&id), output));
                    self.operations.push(Abortable::new(tagged, abort).boxed());
                }
                Effect::Close(closing) => return ControlFlow::Break(Some(closing)),
            }
        }
        ControlFlow::Continue(())
    }

    fn reject_caller(&mut self, refusal: Refusal) -> ControlFlow<ConnectionEnd> {
        if let Some(text) = self.session.refusal(&refusal.message) {
            self.send(Message::Text(text.into()));
        }
        ControlFlow::Break(Some(Closing::forbidden(refusal.message)))
    }

    /// Sends keep-alive messages and detects a dead client.
    fn on_tick(&mut self) -> ControlFlow<ConnectionEnd> {
        let options = &self.app.options;
        if self.outbox.unwritten {
            let stalled = self.clock.written.max(self.clock.heard).elapsed();
            if stalled > options.stall_timeout {
                return ControlFlow::Break(None);
            }
            return ControlFlow::Continue(());
        }
        if self.clock.heard.elapsed() > options.keep_alive * SILENT_INTERVALS {
            return ControlFlow::Break(None);
        }
        if self.session.wants_keep_alive() {
            self.send(Message::Text(Subprotocol::keep_alive().into()));
        }
        self.send(Message::Ping(Vec::new().into()));
        ControlFlow::Continue(())
    }

    fn send(&mut self, message: Message) {
        if !self.outbox.unwritten {
            // A stall is measured from this time.
            self.clock.written = Instant::now();
        }
        self.outbox.push(message);
    }
}

struct Clock {
    init_until: Instant,
    ticks: Interval,
    /// The time of the client's last message.
    heard: Instant,
    /// The time when the outbox was last empty, or got its first message.
    written: Instant,
}

impl Clock {
    fn new(init_timeout: Duration, keep_alive: Duration) -> Self {
        let now = Instant::now();
        let mut ticks = interval_at(now + keep_alive, keep_alive);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { init_until: now + init_timeout, ticks, heard: now, written: now }
    }
}

struct Outbox {
    sink: SplitSink<WebSocket, Message>,
    waiting: VecDeque<Message>,
    /// The sink may hold unsent bytes.
    unwritten: bool,
}

impl Outbox {
    fn has_room(&self) -> bool {
        self.waiting.len() < OUTBOX_LEN
    }

    fn push(&mut self, message: Message) {
        self.waiting.push_back(message);
        self.unwritten = true;
    }

    /// Writes all messages. Cancel safe.
    async fn write(&mut self) -> Result<(), Error> {
        poll_fn(|context| self.poll_write(context)).await?;
        self.unwritten = false;
        Ok(())
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while !self.waiting.is_empty() {
            ready!(Pin::new(&mut self.sink).poll_ready(context))?;
            if let Some(message) = self.waiting.pop_front() {
                self.sink.start_send_unpin(message)?;
            }
        }
        Pin::new(&mut self.sink).poll_flush(context)
    }

    async fn close(self, incoming: SplitStream<WebSocket>, end: ConnectionEnd) {
        let Self { mut sink, waiting, .. } = self;
        let mut rest = stream::iter(waiting.into_iter().map(Ok));
        let closing = async {
            // A client that is gone reads nothing.
            if end.is_some() {
                let _ = sink.send_all(&mut rest).await;
            }
            close_halves(sink, incoming, end).await;
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }
}
