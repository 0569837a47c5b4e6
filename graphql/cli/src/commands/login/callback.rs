use std::{io, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{HeaderName, Uri, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

const CALLBACK_PATH: &str = "/callback";
const MAX_WAITING_BROWSERS: usize = 8;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Headers that stop the browser from caching the page, from loading anything for it, and from
/// sending a referrer.
const PAGE_HEADERS: [(HeaderName, &str); 3] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
];

pub(crate) struct Callback {
    address: String,
    returns: mpsc::Receiver<BrowserReturn>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

type BrowserReturn = (String, Reply);

pub(crate) struct Reply(oneshot::Sender<String>);

#[derive(Clone, Copy)]
pub(crate) enum Page<'a> {
    Done(&'a str),
    Failed(&'a str),
    Stray,
}

impl Page<'_> {
    fn to_html(self) -> String {
        let text = match self {
            // Inserts the name without escaping, because names of toolsets contain no characters
            // that are special in HTML.
            Self::Done(set) => {
                format!("You are logged in to <b>{set}</b>. You may close this page.")
            }
            Self::Failed(set) => {
                format!("You are not logged in to <b>{set}</b>: the terminal shows the reason.")
            }
            Self::Stray => "This page does not belong to the current login.".to_owned(),
        };
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8><title>Faber</title>\
             <body style=\"font: 1.2em sans-serif; margin: 4em\"><p>{text}</p></body></html>"
        )
    }
}

impl Reply {
    pub(crate) fn send_page(self, page: Page<'_>) {
        // Ignores a failure: sending fails if the browser has closed the connection, and then no
        // browser shows the page.
        let _ = self.0.send(page.to_html());
    }
}

impl Callback {
    pub(crate) fn serve(listener: TcpListener) -> io::Result<Self> {
        let origin = format!("http://{}", listener.local_addr()?);
        let (sender, returns) = mpsc::channel(MAX_WAITING_BROWSERS);
        let routes = Router::new()
            .route(CALLBACK_PATH, get(handle_redirect))
            .with_state((origin.clone(), sender));
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(err) = axum::serve(listener, routes).with_graceful_shutdown(stopped).await {
                tracing::warn!(%err, "cannot listen for the browser");
            }
        });
        Ok(Self { address: format!("{origin}{CALLBACK_PATH}"), returns, stop, tasks })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn next_return(&mut self) -> Option<BrowserReturn> {
        self.returns.recv().await
    }

    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        let _ = timeout(CLOSE_TIMEOUT, self.tasks.join_next()).await;
    }
}

async fn handle_redirect(
    State((origin, come)): State<(String, mpsc::Sender<BrowserReturn>)>,
    uri: Uri,
) -> Response {
    let (reply, page) = oneshot::channel();
    let is_heard = come.try_send((format!("{origin}{uri}"), Reply(reply))).is_ok();
    let page = if is_heard { page.await.ok() } else { None };
    let page = page.unwrap_or_else(|| Page::Stray.to_html());
    (PAGE_HEADERS, Html(page)).into_response()
}
