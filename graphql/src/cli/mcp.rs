//! Faber itself as an MCP server: over standard input and output, and as a page of `faber serve`.
//!
//! Its tools are operations of the API, carried out by the same [`Client`] as those of every
//! command: roles, tools that a token may use and limits hold here as they do there.

mod answer;
mod arguments;
mod bounds;
mod call;
mod drivers;
mod fit;
mod lines;
mod offer;
mod page;
mod refusal;
mod reports;
mod schemas;
mod server;
mod wait;

use std::{sync::Arc, time::Duration};

use axum::{Router, middleware};
use rmcp::{
    ServiceExt,
    service::ServerInitializeError,
    transport::{
        stdio_pipes,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
        },
    },
};
use shared::store::Store;
use tokio_util::sync::CancellationToken;

use self::{
    drivers::Drivers,
    lines::Lines,
    server::{Door, Faber},
};
use super::{
    Ending, Session,
    client::Client,
    failure::Failure,
    house::{House, Local, Need, own_limits},
    signals,
};
use crate::{config::Config, schema};

/// Where the page is.
const PAGE: &str = "/mcp";
/// How often a quiet answer says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What the tools work with.
#[derive(Clone)]
struct Office {
    client: Client,
    /// The store, where this process has it.
    store: Option<Arc<dyn Store>>,
    /// What carries executions on, where that is for this process to do.
    drivers: Option<Drivers>,
}

/// Serves over standard input and output until the input ends.
pub(super) async fn mcp(session: &Session) -> Result<Ending, Failure> {
    let deaf = |err| Failure::new("INTERNAL", format!("signals cannot be heard: {err}"));
    let told = signals::told_to_end().map_err(deaf)?;
    let house = House::open(session, Need::Driving).await?;
    let (drivers, driving) = match (house.drive(), house.store()) {
        (Some(drive), Some(_)) => {
            let (drivers, driving) = drivers::drivers(drive);
            (Some(drivers), Some(driving))
        }
        _ => (None, None),
    };
    let office = Office { client: house.client().clone(), store: house.store().cloned(), drivers };
    let serving = async {
        let broken = |err: String| Failure::new("INTERNAL", format!("the session ended: {err}"));
        let service =
            Box::pin(Faber::new(office, Door::Own).serve(Lines::new(stdio_pipes()))).await;
        let service = match service {
            // Whoever came left again.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            service => service.map_err(|err| broken(err.to_string()))?,
        };
        service.waiting().await.map_err(|err| broken(err.to_string())).map(drop)
    };
    let driven = async {
        match driving {
            Some(driving) => driving.go_on().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(driven);
    let ended = tokio::select! {
        ended = serving => ended,
        () = told => Ok(()),
        never = &mut driven => match never {},
    };
    house.close().await;
    ended.map(|()| Ending::Done)
}

/// Returns the page of a server whose executions somebody else carries on. Each request stands for
/// itself: there are no sessions to lose, and any node answers any of them.
pub(super) fn page(config: &Config, local: &Local, stop: CancellationToken) -> Router {
    let schema = schema::build(local.engine.clone(), own_limits());
    let office = Office {
        client: Client::local(schema),
        store: Some(Arc::clone(local.engine.store())),
        drivers: None,
    };
    let faber = Faber::new(office, Door::Page);
    // The server's own guard has looked at hosts and origins.
    let settings = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_legacy_session_mode(false)
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(config.limits.request_bytes())
        .with_cancellation_token(stop);
    let service = StreamableHttpService::new(
        move || Ok(faber.clone()),
        Arc::new(NeverSessionManager::default()),
        settings,
    );
    let most = config.limits.request_bytes();
    Router::new()
        .route_service(PAGE, service)
        .layer(middleware::from_fn_with_state(most, page::enter))
}
