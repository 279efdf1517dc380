//! TLS 1.3 that knows exactly one fact about the other side: its Ed25519 key.
//!
//! Certificates are self-signed and made from the link key in memory; only their public key is checked.
//! Names, dates and issuers are ignored, because the committee lists keys and nothing else. There are no
//! tickets, no resumption and no early data: every handshake proves the key anew, and the replay of a recorded handshake
//! yields nothing.

use quorate_types::PublicKey;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use std::fmt;
use std::sync::Arc;

/// The link key or a configuration made from it is unusable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TlsError {
    /// The bytes are not a PKCS#8 Ed25519 key.
    #[error("not a PKCS#8 Ed25519 key")]
    BadKey,
    /// The TLS library refuses its configuration.
    #[error("TLS configuration: {0}")]
    Configuration(String),
}

/// The name in every certificate. No side checks it, but the TLS protocol requires one.
const NAME: &str = "quorate";

/// A replica's link key with its self-signed certificate.
pub struct LinkKey {
    certificate: CertificateDer<'static>,
    private: PrivatePkcs8KeyDer<'static>,
    public: PublicKey,
}

impl fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkKey({:?})", self.public)
    }
}

impl LinkKey {
    /// Reads the key in these PKCS#8 bytes (DER).
    ///
    /// # Errors
    /// Fails when they are not an Ed25519 key.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, TlsError> {
        let private = PrivatePkcs8KeyDer::from(der.to_vec());
        let pair = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&private, &rcgen::PKCS_ED25519)
            .map_err(|_| TlsError::BadKey)?;
        let public = <[u8; 32]>::try_from(rcgen::PublicKeyData::der_bytes(&pair));
        let certificate = rcgen::CertificateParams::new([NAME.to_owned()])
            .and_then(|params| params.self_signed(&pair))
            .map_err(|error| TlsError::Configuration(error.to_string()))?;
        Ok(Self {
            certificate: certificate.der().clone(),
            private,
            public: PublicKey(public.map_err(|_| TlsError::BadKey)?),
        })
    }

    /// Returns the key of a 32-byte Ed25519 seed, as PKCS#8 (DER). The key is as secret as the seed.
    #[must_use]
    pub fn pkcs8_of_seed(seed: &[u8; 32]) -> Vec<u8> {
        // RFC 8410, section 7: version 0, algorithm 1.3.101.112, an octet string in an octet string.
        let mut der = vec![
            0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
        ];
        der.extend_from_slice(seed);
        der
    }

    /// Returns the public key, which the committee lists.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    fn chain(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let private = PrivateKeyDer::from(self.private.clone_key());
        (vec![self.certificate.clone()], private)
    }
}

/// Returns the configuration for the listener of peers: the other side must show one of these keys.
///
/// # Errors
/// Fails when the TLS library refuses the key.
pub fn listen_to_peers(key: &LinkKey, committee: &[PublicKey]) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = Arc::new(Expected::new(committee.to_vec()));
    let (chain, private) = key.chain();
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(chain, private));
    server(config)
}

/// Returns the configuration for the listener of clients: only this side shows a key.
///
/// # Errors
/// Fails when the TLS library refuses the key.
pub fn listen_to_clients(key: &LinkKey) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, private) = key.chain();
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    server(config)
}

/// Returns the configuration for dialling a peer: the peer must show exactly this key, and receives `key`.
///
/// # Errors
/// Fails when the TLS library refuses the key.
pub fn dial_peer(key: &LinkKey, peer: PublicKey) -> Result<Arc<ClientConfig>, TlsError> {
    let (chain, private) = key.chain();
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Expected::new(vec![peer])))
                .with_client_auth_cert(chain, private)
        });
    client(config)
}

/// Returns the configuration for a client that dials a replica: the replica must show exactly this key.
///
/// # Errors
/// Fails when the TLS library refuses its configuration.
pub fn dial_replica(replica: PublicKey) -> Result<Arc<ClientConfig>, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map(|builder| {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Expected::new(vec![replica])))
                .with_no_client_auth()
        });
    client(config)
}

/// Returns the name to dial. The name is not sent and not compared with anything.
///
/// # Errors
/// Never in practice: the name is a constant.
pub fn server_name() -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(NAME).map_err(|error| TlsError::Configuration(error.to_string()))
}

/// Returns the Ed25519 key in a certificate; `None` for another kind of key, or if it is no certificate.
#[must_use]
pub fn key_of(certificate: &CertificateDer<'_>) -> Option<PublicKey> {
    // RFC 8410, section 4: the only encoding of an Ed25519 key.
    const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let info = parsed.subject_public_key_info();
    let key = info.as_ref().strip_prefix(&PREFIX)?;
    key.try_into().ok().map(PublicKey)
}

/// Translates an error of the TLS library into a reason that operators understand.
#[must_use]
pub fn reason(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(_) => {
            "the certificate carries another link key: another replica, or another cluster"
        }
        Error::NoCertificatesPresented => "no certificate was shown",
        Error::AlertReceived(_) => "the other side refused the TLS handshake",
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => "what arrived is not TLS",
        Error::InappropriateHandshakeMessage { .. } => "the TLS handshake is out of order",
        Error::DecryptError => "a TLS record does not decrypt",
        Error::PeerIncompatible(_) => "no common version or cipher of TLS",
        Error::PeerSentOversizedRecord => "a TLS record is too large",
        _ => "the TLS session failed",
    }
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    // AES-128 first: the fastest where the processor helps, and as strong as the rest of the protocol.
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn server(config: Result<ServerConfig, Error>) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = config.map_err(|error| TlsError::Configuration(error.to_string()))?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ignore_client_order = true;
    Ok(Arc::new(config))
}

fn client(config: Result<ClientConfig, Error>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = config.map_err(|error| TlsError::Configuration(error.to_string()))?;
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// A verifier that accepts exactly the certificates with one of these keys, and exactly the handshakes signed by the key of
/// the certificate.
#[derive(Debug)]
struct Expected {
    keys: Vec<PublicKey>,
    provider: Arc<CryptoProvider>,
}

impl Expected {
    fn new(keys: Vec<PublicKey>) -> Self {
        Self { keys, provider: provider() }
    }

    fn key(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        match key_of(certificate) {
            Some(key) if self.keys.contains(&key) => Ok(()),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}

/// The methods about signatures, which both traits of verifiers have: TLS 1.3 and Ed25519 alone.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(CertificateError::BadSignature.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.key(certificate)?;
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, certificate, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
    };
}

impl ServerCertVerifier for Expected {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.key(certificate).map(|()| ServerCertVerified::assertion())
    }

    verify_signatures!();
}

impl ClientCertVerifier for Expected {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.key(certificate).map(|()| ClientCertVerified::assertion())
    }

    verify_signatures!();
}
