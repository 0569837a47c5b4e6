//! TLS of the server, with a certificate that can be replaced while the server runs.

use std::{
    fmt, io,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// The protocol that the server offers inside TLS. The server speaks no HTTP/2.
const ALPN_PROTOCOL: &[u8] = b"http/1.1";

/// Maximum time of a handshake. It is shorter than the time for the head of a request, because a
/// handshake needs no person and no large upload.
const MAX_HANDSHAKE_TIME: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    config: Arc<ServerConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTlsIdentity {
    #[error("the certificate file has no certificate in PEM")]
    NoCertificate,
    #[error("the certificate file has wrong PEM: {0}")]
    WrongCertificate(String),
    #[error("the key file has no private key in PEM: {0}")]
    WrongKey(String),
    #[error("the certificate and the key do not fit: {0}")]
    Unfit(String),
}

impl TlsIdentity {
    /// Reads a certificate chain and a private key, both in PEM. The certificate of the server is
    /// the first one of the chain.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, InvalidTlsIdentity> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|err| InvalidTlsIdentity::WrongCertificate(err.to_string()))?;
        if chain.is_empty() {
            return Err(InvalidTlsIdentity::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|err| InvalidTlsIdentity::WrongKey(err.to_string()))?;
        let unfit = |err: rustls::Error| InvalidTlsIdentity::Unfit(err.to_string());
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]).map_err(unfit)?;
        let config = builder.with_no_client_auth().with_single_cert(chain.clone(), key);
        let mut config = config.map_err(unfit)?;
        config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
        Ok(Self { chain, config: Arc::new(config) })
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity")
            .field("certificates", &self.chain.len())
            .finish_non_exhaustive()
    }
}

/// The identity that new connections use. Clones share it.
#[derive(Clone, Debug)]
pub struct Tls(Arc<RwLock<TlsIdentity>>);

impl Tls {
    pub fn new(identity: TlsIdentity) -> Self {
        Self(Arc::new(RwLock::new(identity)))
    }

    /// Replaces the identity of new connections. Returns `false` if the certificates are the same.
    pub fn replace(&self, identity: TlsIdentity) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let has_changed = current.chain != identity.chain;
        *current = identity;
        has_changed
    }

    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        max_time: Duration,
    ) -> io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).config);
        let handshake = TlsAcceptor::from(config).accept(stream);
        timeout(max_time.min(MAX_HANDSHAKE_TIME), handshake).await?
    }
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, pki_types::ServerName};
    use tokio::net::TcpListener;
    use tokio_rustls::{TlsConnector, client};

    use super::*;

    const AUTHORITY: &str = include_str!("../../../tests/data/tls/ca.pem");

    fn read_first() -> TlsIdentity {
        TlsIdentity::from_pem(
            include_str!("../../../tests/data/tls/first.pem"),
            include_str!("../../../tests/data/tls/first.key"),
        )
        .unwrap()
    }

    fn read_second() -> TlsIdentity {
        TlsIdentity::from_pem(
            include_str!("../../../tests/data/tls/second.pem"),
            include_str!("../../../tests/data/tls/second.key"),
        )
        .unwrap()
    }

    async fn connect_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.unwrap(), server.unwrap().0)
    }

    async fn shake_hands(
        tls: &Tls,
        versions: &[&'static SupportedProtocolVersion],
        protocols: &[&[u8]],
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_protocol_versions(versions).unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let (client, server) = connect_pair().await;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, client);
        let (connected, accepted) =
            tokio::join!(connecting, tls.accept(server, Duration::from_mins(1)));
        accepted?;
        connected
    }

    fn certificate(stream: &client::TlsStream<TcpStream>) -> CertificateDer<'static> {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }

    #[tokio::test]
    async fn clients_with_tls_1_2_and_1_3_get_http_1_1() {
        let tls = Tls::new(read_first());
        for version in [&TLS12, &TLS13] {
            let stream = shake_hands(&tls, &[version], &[b"h2", b"http/1.1"]).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(ALPN_PROTOCOL));
        }
        let stream = shake_hands(&tls, &[&TLS13], &[]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), None);
        assert!(shake_hands(&tls, &[&TLS13], &[b"h2"]).await.is_err());
    }

    #[tokio::test]
    async fn a_replaced_certificate_is_used_for_new_connections() {
        let tls = Tls::new(read_first());
        let before = certificate(&shake_hands(&tls, &[&TLS13], &[]).await.unwrap());
        assert!(!tls.replace(read_first()));
        assert_eq!(certificate(&shake_hands(&tls, &[&TLS13], &[]).await.unwrap()), before);
        assert!(tls.clone().replace(read_second()));
        assert_ne!(certificate(&shake_hands(&tls, &[&TLS13], &[]).await.unwrap()), before);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_disconnected() {
        let tls = Tls::new(read_first());
        let (_silent, server) = connect_pair().await;
        let accepted = tls.accept(server, Duration::from_hours(1)).await;
        assert_eq!(accepted.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_wrong_identity_is_refused() {
        let refuse = |chain: &str, key: &str| TlsIdentity::from_pem(chain, key).unwrap_err();
        assert_eq!(refuse("", ""), InvalidTlsIdentity::NoCertificate);
        let chain = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----";
        assert!(matches!(refuse(chain, "no key"), InvalidTlsIdentity::WrongKey(_)));
        let cut = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert!(matches!(refuse(cut, "no key"), InvalidTlsIdentity::WrongCertificate(_)));
    }
}
