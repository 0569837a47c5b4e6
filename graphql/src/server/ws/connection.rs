//! The loop of one WebSocket. It polls operations only while the outbox has space, so that a slow
//! client delays only its own operations.

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
        entry::HandshakeCaller,
        metrics::GaugeGuard,
        operation::Operation,
        refusal::Refusal,
        traced_request::TracedOperation,
    },
    close::{Closing, close_halves},
    message::Subprotocol,
    session::{Output, Session, SessionEffect},
};

/// Maximum number of messages in the outbox. All messages of the outbox are sent in one write.
const MAX_OUTBOX_MESSAGES: usize = 32;

/// A client that sends nothing for this number of keep-alive intervals is disconnected.
const MAX_SILENT_INTERVALS: u32 = 3;

const CLOSE_TIMEOUT: Duration = Duration::from_secs(4);

type TaggedOutput = (Arc<str>, Output);

pub(super) struct Connection {
    app: Arc<App>,
    handshake: HandshakeCaller,
    /// The caller. `connection_init` sets it, before any operation.
    caller: Arc<Caller>,
    session: Session,
    operations: SelectAll<BoxStream<'static, TaggedOutput>>,
    incoming: SplitStream<WebSocket>,
    outbox: Outbox,
    timers: ConnectionTimers,
    _open_gauge: GaugeGuard,
}

enum ConnectionEvent {
    Received(Option<Result<Message, Error>>),
    /// `None` if all operations were stopped.
    OperationOutput(Option<TaggedOutput>),
    Written(Result<(), Error>),
    InitTimeout,
    Tick,
    Expired,
    Revoked,
    Stop,
}

/// The end of the loop: a close by the server, or `None` if the client has disconnected or does not
/// respond.
type ConnectionEnd = Option<Closing>;

impl Connection {
    pub(super) fn new(
        app: Arc<App>,
        socket: WebSocket,
        protocol: Subprotocol,
        caller: HandshakeCaller,
    ) -> Self {
        let (sink, incoming) = socket.split();
        let options = &app.options;
        Self {
            caller: Arc::default(),
            handshake: caller,
            session: Session::new(protocol, options.max_operations, options.max_body_bytes),
            operations: SelectAll::new(),
            incoming,
            outbox: Outbox { sink, queued_messages: VecDeque::new(), has_unsent_bytes: false },
            timers: ConnectionTimers::new(options.init_timeout, options.keep_alive),
            _open_gauge: app.metrics.count_open_websocket(),
            app,
        }
    }

    pub(super) async fn run(mut self) {
        let end = loop {
            let input = self.next_event().await;
            if let ControlFlow::Break(end) = self.apply_event(input).await {
                break end;
            }
        };
        let Self { operations, incoming, outbox, .. } = self;
        drop(operations);
        outbox.close(incoming, end).await;
    }

    async fn next_event(&mut self) -> ConnectionEvent {
        let has_room = self.outbox.has_room();
        tokio::select! {
            biased;
            () = self.app.stopping.cancelled() => ConnectionEvent::Stop,
            () = self.caller.wait_until_expired() => ConnectionEvent::Expired,
            () = self.caller.grant.wait_until_revoked() => ConnectionEvent::Revoked,
            received = self.incoming.next(), if has_room => ConnectionEvent::Received(received),
            given = self.operations.next(), if has_room && !self.operations.is_empty() => {
                ConnectionEvent::OperationOutput(given)
            }
            written = self.outbox.write(), if self.outbox.has_unsent_bytes => {
                ConnectionEvent::Written(written)
            }
            () = sleep_until(self.timers.init_until), if !self.session.is_acknowledged() => {
                ConnectionEvent::InitTimeout
            }
            _ = self.timers.ticks.tick() => ConnectionEvent::Tick,
        }
    }

    async fn apply_event(&mut self, input: ConnectionEvent) -> ControlFlow<ConnectionEnd> {
        match input {
            ConnectionEvent::Stop => ControlFlow::Break(Some(Closing::going_away())),
            ConnectionEvent::Expired => ControlFlow::Break(Some(Closing::expired())),
            ConnectionEvent::Revoked => ControlFlow::Break(Some(Closing::revoked())),
            ConnectionEvent::InitTimeout => ControlFlow::Break(Some(Closing::init_timeout())),
            ConnectionEvent::Received(received) => self.receive_message(received).await,
            ConnectionEvent::OperationOutput(None) => ControlFlow::Continue(()),
            ConnectionEvent::OperationOutput(Some((id, output))) => {
                let effect = self.session.output_effect(&id, output);
                self.apply_effects(effect).await
            }
            ConnectionEvent::Written(Ok(())) => {
                self.timers.outbox_progress_at = Instant::now();
                ControlFlow::Continue(())
            }
            ConnectionEvent::Written(Err(_)) => ControlFlow::Break(None),
            ConnectionEvent::Tick => self.check_timeouts(),
        }
    }

    async fn receive_message(
        &mut self,
        received: Option<Result<Message, Error>>,
    ) -> ControlFlow<ConnectionEnd> {
        self.timers.last_received_at = Instant::now();
        match received {
            Some(Ok(Message::Text(text))) => {
                let effects = self.session.receive_message(&text);
                self.apply_effects(effects).await
            }
            Some(Ok(Message::Binary(_))) => {
                ControlFlow::Break(Some(Closing::invalid_message("messages must be text")))
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {
                // The library has queued the pong, but it sends the pong only with the next write.
                self.outbox.has_unsent_bytes = true;
                ControlFlow::Continue(())
            }
            Some(Ok(Message::Close(_))) | None => ControlFlow::Break(None),
            Some(Err(error)) => {
                tracing::debug!(%error, "a WebSocket failed, or a message was far too large");
                ControlFlow::Break(Some(Closing::too_big(self.app.options.max_body_bytes)))
            }
        }
    }

    async fn apply_effects(
        &mut self,
        effects: impl IntoIterator<Item = SessionEffect>,
    ) -> ControlFlow<ConnectionEnd> {
        for effect in effects {
            match effect {
                SessionEffect::IdentifyClient(init) => {
                    let options = &self.app.options;
                    let (access, sign_in) = (&options.access, options.sign_in.as_deref());
                    match self.handshake.identify_client(access, sign_in, init).await {
                        Ok(caller) => self.caller = Arc::new(caller),
                        Err(refusal) => return self.reject_caller(refusal),
                    }
                }
                SessionEffect::Send(text) => self.send(Message::Text(text.into())),
                SessionEffect::Start { id, operation, abort } => {
                    let id: Arc<str> = id.into();
                    let traced = self.trace_operation(&operation);
                    let answers = operation.execute_as_stream(&self.app, &self.caller);
                    let answers = traced.trace_answers(answers);
                    let answers = answers.map(|outcome| Output::Answer(Box::new(outcome)));
                    let outputs = answers.chain(stream::once(async { Output::End }));
                    let tagged = outputs.map(move |output| (Arc::clone(&id), output));
                    self.operations.push(Abortable::new(tagged, abort).boxed());
                }
                SessionEffect::Close(closing) => return ControlFlow::Break(Some(closing)),
            }
        }
        ControlFlow::Continue(())
    }

    /// Starts the span of an operation. The trace context of the operation itself replaces that of
    /// the handshake, because one connection can carry operations of many traces.
    fn trace_operation(&self, operation: &Operation) -> TracedOperation {
        let caller = operation.read_trace_context();
        let caller = caller.or_else(|| self.handshake.read_trace_context());
        let sink = self.app.hooks.span_sink.as_ref();
        TracedOperation::start_in_websocket(sink, operation.kind(), caller)
    }

    fn reject_caller(&mut self, refusal: Refusal) -> ControlFlow<ConnectionEnd> {
        if let Some(text) = self.session.refusal_message(&refusal.message) {
            self.send(Message::Text(text.into()));
        }
        ControlFlow::Break(Some(Closing::forbidden(refusal.message)))
    }

    fn check_timeouts(&mut self) -> ControlFlow<ConnectionEnd> {
        let options = &self.app.options;
        if self.outbox.has_unsent_bytes {
            let stalled =
                self.timers.outbox_progress_at.max(self.timers.last_received_at).elapsed();
            if stalled > options.stall_timeout {
                return ControlFlow::Break(None);
            }
            return ControlFlow::Continue(());
        }
        if self.timers.last_received_at.elapsed() > options.keep_alive * MAX_SILENT_INTERVALS {
            return ControlFlow::Break(None);
        }
        if self.session.wants_keep_alive() {
            self.send(Message::Text(Subprotocol::keep_alive_message().into()));
        }
        self.send(Message::Ping(Vec::new().into()));
        ControlFlow::Continue(())
    }

    fn send(&mut self, message: Message) {
        if !self.outbox.has_unsent_bytes {
            // The stall timeout starts when an empty outbox gets a message.
            self.timers.outbox_progress_at = Instant::now();
        }
        self.outbox.push(message);
    }
}

struct ConnectionTimers {
    init_until: Instant,
    ticks: Interval,
    last_received_at: Instant,
    /// The time at which the outbox last became empty, or got a message while it was empty. The
    /// stall timeout counts from this time or from `last_received_at`, whichever is later.
    outbox_progress_at: Instant,
}

impl ConnectionTimers {
    fn new(init_timeout: Duration, keep_alive: Duration) -> Self {
        let now = Instant::now();
        let mut ticks = interval_at(now + keep_alive, keep_alive);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            init_until: now + init_timeout,
            ticks,
            last_received_at: now,
            outbox_progress_at: now,
        }
    }
}

struct Outbox {
    sink: SplitSink<WebSocket, Message>,
    queued_messages: VecDeque<Message>,
    /// `true` if the sink could contain bytes that are not sent yet.
    has_unsent_bytes: bool,
}

impl Outbox {
    fn has_room(&self) -> bool {
        self.queued_messages.len() < MAX_OUTBOX_MESSAGES
    }

    fn push(&mut self, message: Message) {
        self.queued_messages.push_back(message);
        self.has_unsent_bytes = true;
    }

    async fn write(&mut self) -> Result<(), Error> {
        poll_fn(|context| self.poll_write(context)).await?;
        self.has_unsent_bytes = false;
        Ok(())
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while !self.queued_messages.is_empty() {
            ready!(Pin::new(&mut self.sink).poll_ready(context))?;
            if let Some(message) = self.queued_messages.pop_front() {
                self.sink.start_send_unpin(message)?;
            }
        }
        Pin::new(&mut self.sink).poll_flush(context)
    }

    async fn close(self, incoming: SplitStream<WebSocket>, end: ConnectionEnd) {
        let Self { mut sink, queued_messages, .. } = self;
        let mut rest = stream::iter(queued_messages.into_iter().map(Ok));
        let closing = async {
            // Sends the remaining messages only if the server closes, because a disconnected client
            // reads no more messages.
            if end.is_some() {
                let _ = sink.send_all(&mut rest).await;
            }
            close_halves(sink, incoming, end).await;
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }
}
