use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

/// Sends requests on the runtime of the program, because the exporter's own thread has no runtime.
#[derive(Debug)]
pub(super) struct RuntimeClient {
    client: reqwest::Client,
    runtime: Handle,
}

impl RuntimeClient {
    pub(super) fn new(runtime: Handle, timeout: Duration) -> Result<Self, String> {
        // Ignores a failure: another part of the program has installed a provider before, which
        // works, too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(timeout).build();
        let client = client.map_err(|err| format!("cannot export spans: {err}"))?;
        Ok(Self { client, runtime })
    }
}

#[async_trait]
impl HttpClient for RuntimeClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move {
            let answer = client.execute(request).await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let body = answer.bytes().await?;
            let mut response = Response::new(body);
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            Ok::<_, reqwest::Error>(response)
        });
        Ok(sending.await??)
    }
}
