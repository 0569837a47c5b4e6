//! Over real HTTP, against a server that has no measure.

mod kinds;

use std::sync::atomic::AtomicUsize;

use axum::{Router, http::StatusCode, response::IntoResponse};
use tokio::io::AsyncReadExt as _;

use super::{
    super::{Key, Model, ModelError, Provider, ProviderKind, Question, Settings, settings},
    *,
};

/// Bytes of a piece.
const PIECE: usize = 64 << 10;
/// More than a server ever sends: what was on its way is in buffers of the system.
const MOST: usize = 4 * ANSWER_BYTES;

/// What a server sends until nobody listens any more, and how much that was.
struct Endless {
    piece: Bytes,
    sent: Arc<AtomicUsize>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Off;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Off>>> {
        self.sent.fetch_add(self.piece.len(), Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(self.piece.clone()))))
    }
}

/// Begins a server that answers without end. Returns its address, and what it has sent.
async fn endless(status: StatusCode, running: &mut JoinSet<()>) -> (String, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let answer = move || {
        let piece = Bytes::from(vec![b' '; PIECE]);
        let endless = Endless { piece, sent: Arc::clone(&counted) };
        let form = [("content-type", "application/json")];
        async move { (status, form, axum::body::Body::new(endless)).into_response() }
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = format!("http://{}/v1", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer);
    running.spawn(async move { axum::serve(listener, router).await.unwrap() });
    (at, sent)
}

fn provider(base_url: String) -> Provider {
    provider_of(ProviderKind::named("openai").unwrap(), "m", Some(base_url))
}

fn provider_of(provider: ProviderKind, model: &str, base_url: Option<String>) -> Provider {
    let settings = Settings {
        provider,
        base_url,
        model: model.to_owned(),
        key: Key::None,
        timeout: settings::TIMEOUT,
        retries: 0,
        max_tokens: None,
        temperature: None,
        price: None,
        structured: true,
        native_tools: true,
        fallback: None,
    };
    Provider::new(&settings).unwrap()
}

#[tokio::test]
async fn an_answer_without_end_is_broken_off() {
    let mut running = JoinSet::new();
    let (at, sent) = endless(StatusCode::OK, &mut running).await;
    let err = provider(at).ask(&Question::default()).await.unwrap_err();
    assert!(matches!(err, ModelError::Refused { .. }), "the next would be as long: {err}");
    assert!(err.why().starts_with("its answer has more than 16 MB"), "{err}");
    let sent = sent.load(Ordering::Relaxed);
    assert!((ANSWER_BYTES..MOST).contains(&sent), "{sent}");
}

#[tokio::test]
async fn a_list_of_models_without_end_is_broken_off() {
    let mut running = JoinSet::new();
    let (at, _) = endless(StatusCode::OK, &mut running).await;
    let err = provider(at).is_listed().await.unwrap_err();
    assert!(err.why().starts_with("its answer has more than 16 MB"), "{err}");
}

#[tokio::test]
async fn of_an_error_without_end_the_beginning_is_enough() {
    let mut running = JoinSet::new();
    let (at, sent) = endless(StatusCode::SERVICE_UNAVAILABLE, &mut running).await;
    let err = provider(at).ask(&Question::default()).await.unwrap_err();
    assert!(matches!(err, ModelError::Unavailable { .. }), "{err}");
    assert!(err.why().starts_with("it answered 503"), "{err}");
    assert!(sent.load(Ordering::Relaxed) < ANSWER_BYTES);
}

#[tokio::test]
async fn others_on_the_machine_are_not_let_through() {
    let mut running = JoinSet::new();
    let (at, sent) = endless(StatusCode::OK, &mut running).await;
    let (exchanges, _) = Exchanges::new().unwrap();
    let stranger = Client::builder().no_proxy().build().unwrap();
    let provider = Endpoint::from_owned(at);
    let refused = exchanges.run(&provider, |here| {
        let request = stranger.get(here.base_url());
        async move { Ok(request.send().await.is_err()) }
    });
    assert!(refused.await.unwrap());
    assert_eq!(sent.load(Ordering::Relaxed), 0);
}

/// Whatever `genai` makes of the address that it is given, it gets no further.
#[tokio::test]
async fn nobody_is_reached_by_name() {
    let mut running = JoinSet::new();
    let (at, sent) = endless(StatusCode::OK, &mut running).await;
    let (_, inward) = Exchanges::new().unwrap();
    let by_name = at.replace("127.0.0.1", "localhost");
    assert!(Client::builder().no_proxy().build().unwrap().get(&by_name).send().await.is_ok());
    let before = sent.load(Ordering::Relaxed);
    assert!(inward.get(by_name).send().await.unwrap_err().is_connect());
    assert!(inward.get(at).send().await.is_ok() && before > 0);
}

/// Whoever says nothing on the loopback keeps nobody else out.
#[tokio::test]
async fn who_is_silent_makes_room() {
    let mut running = JoinSet::new();
    let (at, _) = endless(StatusCode::SERVICE_UNAVAILABLE, &mut running).await;
    let (exchanges, inward) = Exchanges::new().unwrap();
    let provider = Endpoint::from_owned(at);
    let answered = exchanges.run(&provider, |here| async move {
        let url: Url = here.base_url().parse().unwrap();
        let place = (Ipv4Addr::LOCALHOST, url.port().unwrap());
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS {
            silent.push(TcpStream::connect(place).await.unwrap());
        }
        let answer = inward.get(url).send().await.unwrap();
        // Of the others one was closed, and nothing was said to it.
        let mut said = Vec::new();
        silent[0].read_to_end(&mut said).await.unwrap();
        Ok((answer.status(), said))
    });
    let expected = (StatusCode::SERVICE_UNAVAILABLE, Vec::new());
    assert_eq!(answered.await.unwrap(), expected);
}

#[test]
fn paths_stay_and_origins_change() {
    for (base, origin, here) in [
        ("https://api.h/v1/", "https://api.h", "http://127.0.0.1:7/v1/"),
        ("http://h:80/", "http://h", "http://127.0.0.1:7/"),
        ("https://[::1]:9/a/b/", "https://[::1]:9", "http://127.0.0.1:7/a/b/"),
    ] {
        let expected = Some((origin.to_owned(), here.to_owned()));
        assert_eq!(addresses(base, 7), expected, "{base}");
    }
    assert_eq!(addresses("nowhere", 7), None);
}
