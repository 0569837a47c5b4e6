//! What a provider sends, counted.
//!
//! `genai` reads an answer to its end, however long that is, and cannot be told otherwise. So it is
//! shown a listener on the loopback in the place of the provider, for one exchange. What it says
//! there goes on to the provider; what comes back is let through up to a limit.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    io,
    net::Ipv4Addr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use genai::resolver::Endpoint;
use hyper::{
    Request, Response, Version,
    body::{Body, Bytes, Frame, Incoming},
    header::{
        CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use reqwest::{
    Client, Url,
    dns::{Name, Resolve, Resolving},
    redirect::Policy,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

/// Bytes of an answer: the longest that models write, many times over.
pub(super) const ANSWER_BYTES: usize = 16 << 20;
/// Bytes of an answer that is an error; what is behind them is left out.
const ERROR_BYTES: usize = 64 << 10;
/// How long a provider may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Connections to one listener at a time: `genai` needs one. Where there are more, the one that has
/// been silent the longest makes room.
const CONNECTIONS: usize = 8;
/// How long a connection may take to show the pass.
const SILENCE: Duration = Duration::from_secs(5);
/// Who asks.
const AGENT: &str = concat!("faber/", env!("CARGO_PKG_VERSION"));
/// What `genai` shows, so that nobody else on the machine is let through.
const PASS: HeaderName = HeaderName::from_static("faber-pass");
/// What is between two ends of one connection, and says nothing about the next one.
const HOP: [HeaderName; 3] = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING];

/// Speaks to a provider, and lets through so much of what it says.
#[derive(Debug)]
pub(super) struct Exchanges {
    outward: Client,
    pass: HeaderValue,
}

/// Why an exchange came to nothing.
#[derive(Debug)]
pub(super) enum Broken {
    /// What `genai` makes of it.
    Said(Box<genai::Error>),
    /// The provider was not reached, or was lost.
    Lost(String),
    /// The answer has more than [`ANSWER_BYTES`].
    TooLong,
}

/// One exchange, as seen by its connections.
struct Relay {
    outward: Client,
    pass: HeaderValue,
    /// The provider: what stands before the path.
    origin: String,
    trouble: Mutex<Option<Broken>>,
}

/// A connection to a listener.
struct Open {
    served: AbortHandle,
    /// Whether the pass was shown on it.
    is_ours: Arc<AtomicBool>,
}

/// What a provider sends, up to a limit.
struct Counted {
    body: reqwest::Body,
    left: usize,
    is_error: bool,
    relay: Arc<Relay>,
}

/// A connection is closed, for a reason that was noted.
#[derive(Debug, thiserror::Error)]
#[error("the exchange is broken off")]
struct Off;

/// Knows where no host is. Who speaks by it reaches the loopback, which needs no name, and nobody
/// past it.
struct Nowhere;

impl Resolve for Nowhere {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(std::future::ready(Err(Off.into())))
    }
}

impl Exchanges {
    /// Makes ready to speak, and returns the client by which `genai` does.
    pub(super) fn new() -> reqwest::Result<(Self, Client)> {
        // Whoever comes later finds it installed, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let pass = HeaderValue::from_str(&nanoid::nanoid!()).expect("it is letters and digits");
        let ours = HeaderMap::from_iter([(PASS, pass.clone())]);
        let inward = Client::builder().default_headers(ours).redirect(Policy::none());
        // Each exchange has a listener of its own, which is closed with it.
        let inward = inward.no_proxy().no_gzip().pool_max_idle_per_host(0);
        let inward = inward.dns_resolver(Arc::new(Nowhere)).build()?;
        let outward = Client::builder().user_agent(AGENT).connect_timeout(CONNECT);
        let outward = outward.redirect(Policy::none()).build()?;
        Ok((Self { outward, pass }, inward))
    }

    /// Lets `speak` speak to the provider at an address, which it is given another one for.
    pub(super) async fn run<T, F>(
        &self,
        provider: &Endpoint,
        speak: impl FnOnce(Endpoint) -> F,
    ) -> Result<T, Broken>
    where
        F: Future<Output = genai::Result<T>>,
    {
        let closed = |err: io::Error| Broken::Lost(format!("the loopback cannot be used: {err}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(closed)?;
        let port = listener.local_addr().map_err(closed)?.port();
        let (origin, here) = addresses(provider.base_url(), port)
            .ok_or_else(|| Broken::Lost(format!("`{}` is no address", provider.base_url())))?;
        let (outward, pass) = (self.outward.clone(), self.pass.clone());
        let relay = Arc::new(Relay { outward, pass, origin, trouble: Mutex::default() });
        let said = tokio::select! {
            said = speak(Endpoint::from_owned(here)) => said,
            err = relay.serve(&listener) => return Err(closed(err)),
        };
        said.map_err(|err| {
            // What happened out there is the cause of what `genai` saw.
            let noted = relay.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
            noted.unwrap_or_else(|| Broken::Said(Box::new(err)))
        })
    }
}

impl Relay {
    /// Serves connections for as long as it is polled. Ends where none can be taken any more.
    async fn serve(self: &Arc<Self>, listener: &TcpListener) -> io::Error {
        let (mut tasks, mut open) = (JoinSet::new(), VecDeque::new());
        loop {
            let (stream, _) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(err) => return err,
            };
            while tasks.try_join_next().is_some() {}
            if !has_room(&mut open) {
                continue;
            }
            let is_ours = Arc::new(AtomicBool::new(false));
            let served = tasks.spawn(Arc::clone(self).converse(stream, Arc::clone(&is_ours)));
            open.push_back(Open { served, is_ours });
        }
    }

    /// Serves a connection. One on which the pass is not shown in time is closed.
    async fn converse(self: Arc<Self>, stream: TcpStream, is_ours: Arc<AtomicBool>) {
        let service = service_fn(|request| Arc::clone(&self).pass_on(request, &is_ours));
        let mut http = http1::Builder::new();
        http.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(SILENCE);
        if let Err(err) = http.serve_connection(TokioIo::new(stream), service).await {
            tracing::trace!(%err, "an exchange is broken off");
        }
    }

    async fn pass_on(
        self: Arc<Self>,
        request: Request<Incoming>,
        is_ours: &AtomicBool,
    ) -> Result<Response<Counted>, Off> {
        let (mut parts, body) = request.into_parts();
        if parts.headers.remove(PASS).as_ref() != Some(&self.pass) {
            return Err(Off);
        }
        is_ours.store(true, Ordering::Relaxed);
        for name in HOP.iter().chain([&HOST]) {
            parts.headers.remove(name);
        }
        let path = parts.uri.path_and_query().map_or("/", |it| it.as_str());
        let request = self.outward.request(parts.method, format!("{}{path}", self.origin));
        let request = request.headers(parts.headers).body(whole(body).await?);
        let answer: Response<reqwest::Body> = match request.send().await {
            Ok(answer) => answer.into(),
            Err(err) => return Err(self.lost(&err)),
        };
        let (mut parts, body) = answer.into_parts();
        parts.version = Version::HTTP_11;
        for name in &HOP {
            parts.headers.remove(name);
        }
        let is_error = !parts.status.is_success();
        let left = if is_error { ERROR_BYTES } else { ANSWER_BYTES };
        Ok(Response::from_parts(parts, Counted { body, left, is_error, relay: self }))
    }

    fn lost(&self, err: &reqwest::Error) -> Off {
        self.broken(Broken::Lost(format!(
            "it cannot be reached ({}): see that it runs, and check `planner.base_url`",
            cause(err)
        )))
    }

    /// Notes why the exchange is broken off: the first reason is the cause of others.
    fn broken(&self, why: Broken) -> Off {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        Off
    }
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Off;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Off>>> {
        let it = self.get_mut();
        if it.left == 0 && it.is_error {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut it.body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(err)) => {
                let why = format!("its answer broke off before its end ({})", cause(&err));
                return Poll::Ready(Some(Err(it.relay.broken(Broken::Lost(why)))));
            }
            Some(Ok(frame)) => frame,
        };
        let Ok(mut data) = frame.into_data() else { return Poll::Ready(None) };
        if data.len() > it.left {
            if !it.is_error {
                return Poll::Ready(Some(Err(it.relay.broken(Broken::TooLong))));
            }
            data.truncate(it.left);
        }
        it.left -= data.len();
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

/// Makes room for one more connection; returns whether there is any.
fn has_room(open: &mut VecDeque<Open>) -> bool {
    open.retain(|it| !it.served.is_finished());
    if open.len() < CONNECTIONS {
        return true;
    }
    let silent = open.iter().position(|it| !it.is_ours.load(Ordering::Relaxed));
    let silent = silent.and_then(|at| open.remove(at));
    silent.inspect(|it| it.served.abort()).is_some()
}

/// Returns what stands before the paths of a provider, and its address with the loopback's port
/// in the place of that.
fn addresses(base: &str, port: u16) -> Option<(String, String)> {
    let mut url: Url = base.parse().ok()?;
    let origin = url.origin();
    url.set_scheme("http").ok()?;
    url.set_host(Some(&Ipv4Addr::LOCALHOST.to_string())).ok()?;
    url.set_port(Some(port)).ok()?;
    Some((origin.ascii_serialization(), url.into()))
}

/// Reads a question to its end: it is ours.
async fn whole(mut body: Incoming) -> Result<Vec<u8>, Off> {
    let mut read = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        read.extend_from_slice(&frame.map_err(|_| Off)?.into_data().unwrap_or_default());
    }
    Ok(read)
}

/// Returns the first cause of what happened on the way.
fn cause(err: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = err;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
