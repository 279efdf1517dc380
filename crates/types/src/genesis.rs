//! Genesis: all configuration that must be equal at all nodes, because validity of bodies or the state depend on it.
//! `ClusterId` is the digest of genesis. Addresses are no part of it.

use crate::codec::{DecodeError, Reader, Wire, put_bytes, put_list};
use crate::committee::{Committee, Member};
use crate::digest::{Digest, context};
use crate::ids::{ClusterId, Epoch, ProtocolId, PublicKey};
use crate::limits;

/// The authentication of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientAuth {
    /// Ed25519 over each bundle, by the ZIP-215 rule.
    #[default]
    Signature,
    /// No authentication, for benchmarks only.
    None,
}

/// Limits on bodies. Validity depends on them, so they are equal at all replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimits {
    /// The largest number of bytes of one request.
    pub request_bytes_max: u32,
    /// The largest number of requests in one bundle.
    pub bundle_requests_max: u32,
    /// The largest number of bytes of one bundle's content.
    pub bundle_bytes_max: u32,
    /// The largest number of bundles in one block.
    pub block_bundles_max: u32,
    /// The largest number of requests in all bundles of one block. One bundle is always allowed.
    pub block_requests_max: u32,
    /// The largest number of bytes of all bundles of one block. One bundle is always allowed.
    pub block_bytes_max: u32,
    /// The largest number of bytes of one bundle's results.
    pub reply_bytes_max: u32,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            request_bytes_max: 256 << 10,
            bundle_requests_max: 4_096,
            bundle_bytes_max: 1 << 20,
            block_bundles_max: 256,
            block_requests_max: 1 << 20,
            block_bytes_max: 4 << 20,
            reply_bytes_max: 1 << 20,
        }
    }
}

/// The shared configuration of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Genesis {
    /// The name of the protocol in the registry.
    pub protocol: ProtocolId,
    /// The number of faulty replicas tolerated.
    pub f: u16,
    /// Both public keys of each replica, by id.
    pub members: Vec<Member>,
    /// The authentication of clients.
    pub client_auth: ClientAuth,
    /// Limits on bodies.
    pub bodies: BodyLimits,
    /// `W_c`: the number of bundle numbers above a session's floor that may be in use.
    pub client_window: u32,
    /// `CLIENTS_MAX`: the largest number of sessions open at the same time.
    pub clients_max: u32,
    /// K: the number of heights between checkpoints.
    pub checkpoint_every: u64,
    /// L: the number of heights above the stable checkpoint that may be in use. It is a multiple of K and at least 2K.
    pub window: u64,
    /// Name and version of the application.
    pub application: String,
    /// The client that registers client keys.
    pub admin: PublicKey,
    /// Client keys that are registered initially.
    pub clients: Vec<PublicKey>,
    /// The protocol's shared parameters as canonical text (TOML, keys in order).
    pub params: String,
    /// Random bytes that distinguish two clusters with equal settings.
    pub salt: [u8; 32],
    /// The digest of the state at height 0, for a cluster that begins with the state of a backup. `None` for the
    /// application's own first state.
    pub base: Option<Digest>,
}

/// An error in a genesis configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {expected}")]
pub struct BadGenesis {
    /// The name of the field.
    pub field: &'static str,
    /// The values that the field may have.
    pub expected: String,
}

const APPLICATION_BYTES_MAX: usize = 256;
const PARAMS_BYTES_MAX: usize = 64 << 10;

impl Genesis {
    /// Returns the digest of the configuration.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        ClusterId(Digest::of(&context::GENESIS, &self.to_bytes()))
    }

    /// Returns the first committee.
    #[must_use]
    pub fn committee(&self) -> Committee {
        Committee {
            cluster: self.cluster_id(),
            protocol: self.protocol,
            epoch: Epoch(0),
            f: usize::from(self.f),
            members: self.members.clone(),
        }
    }

    /// Checks every field against its range, and fields against each other. The protocol checks whether n suits f.
    ///
    /// # Errors
    /// Fails with the first field that is out of range and its expected range.
    pub fn check(&self) -> Result<(), BadGenesis> {
        let n = self.members.len();
        let bad = |field, expected: String| Err(BadGenesis { field, expected });
        if n == 0 || n > limits::REPLICAS_MAX {
            return bad("replicas", format!("1 to {} entries", limits::REPLICAS_MAX));
        }
        if usize::from(self.f) >= n {
            return bad("f", format!("less than the {n} replicas"));
        }
        let bodies = &self.bodies;
        for (field, value, ceiling) in [
            ("request_bytes_max", bodies.request_bytes_max, limits::REQUEST_BYTES_CEILING),
            ("bundle_requests_max", bodies.bundle_requests_max, limits::BUNDLE_REQUESTS_CEILING),
            ("bundle_bytes_max", bodies.bundle_bytes_max, limits::BUNDLE_BYTES_CEILING),
            ("block_bundles_max", bodies.block_bundles_max, limits::BLOCK_BUNDLES_CEILING),
            ("block_requests_max", bodies.block_requests_max, limits::BLOCK_REQUESTS_CEILING),
            ("block_bytes_max", bodies.block_bytes_max, limits::BLOCK_BYTES_CEILING),
            ("reply_bytes_max", bodies.reply_bytes_max, limits::REPLY_BYTES_CEILING),
            ("client_window", self.client_window, limits::WINDOW_CEILING),
            ("clients_max", self.clients_max, limits::CLIENTS_CEILING),
        ] {
            if value == 0 || value > ceiling {
                return bad(field, format!("1 to {ceiling}"));
            }
        }
        if bodies.bundle_bytes_max < bodies.request_bytes_max.saturating_add(128) {
            return bad("bundle_bytes_max", "at least request_bytes_max + 128".to_owned());
        }
        if !(2..=1 << 20).contains(&self.checkpoint_every) {
            return bad("checkpoint_every", "2 to 1048576".to_owned());
        }
        let multiple = self.window.checked_rem(self.checkpoint_every) == Some(0);
        if !multiple || self.window < self.checkpoint_every.saturating_mul(2) || self.window > 1 << 22 {
            return bad(
                "window",
                "a multiple of checkpoint_every, at least twice it and at most 4194304".to_owned(),
            );
        }
        if self.application.len() > APPLICATION_BYTES_MAX || self.params.len() > PARAMS_BYTES_MAX {
            return bad("application", format!("at most {APPLICATION_BYTES_MAX} bytes"));
        }
        if self.clients.len() > limits::REGISTER_KEYS_MAX {
            return bad("clients", format!("at most {} keys", limits::REGISTER_KEYS_MAX));
        }
        Ok(())
    }
}

crate::wire_struct!(BodyLimits {
    request_bytes_max,
    bundle_requests_max,
    bundle_bytes_max,
    block_bundles_max,
    block_requests_max,
    block_bytes_max,
    reply_bytes_max
});

impl Wire for Genesis {
    fn encode(&self, out: &mut Vec<u8>) {
        self.protocol.encode(out);
        self.f.encode(out);
        put_list(out, &self.members);
        out.push(match self.client_auth {
            ClientAuth::None => 0,
            ClientAuth::Signature => 1,
        });
        self.bodies.encode(out);
        self.client_window.encode(out);
        self.clients_max.encode(out);
        self.checkpoint_every.encode(out);
        self.window.encode(out);
        put_bytes(out, self.application.as_bytes());
        self.admin.encode(out);
        put_list(out, &self.clients);
        put_bytes(out, self.params.as_bytes());
        out.extend_from_slice(&self.salt);
        // The last field has no tag, so that clusters without it keep their identity.
        if let Some(base) = &self.base {
            base.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol: ProtocolId::decode(reader)?,
            f: reader.u16()?,
            members: reader.list("members", limits::REPLICAS_MAX, 64, Member::decode)?,
            client_auth: match reader.u8()? {
                0 => ClientAuth::None,
                1 => ClientAuth::Signature,
                _ => return Err(DecodeError::Tag("client authentication")),
            },
            bodies: BodyLimits::decode(reader)?,
            client_window: reader.u32()?,
            clients_max: reader.u32()?,
            checkpoint_every: reader.u64()?,
            window: reader.u64()?,
            application: reader.text("application", APPLICATION_BYTES_MAX)?.to_owned(),
            admin: PublicKey::decode(reader)?,
            clients: reader.list("clients", limits::REGISTER_KEYS_MAX, 32, PublicKey::decode)?,
            params: reader.text("params", PARAMS_BYTES_MAX)?.to_owned(),
            salt: reader.array()?,
            base: if reader.rest().is_empty() { None } else { Some(Digest::decode(reader)?) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn genesis() -> Genesis {
        let key = |i: u8| PublicKey([i; 32]);
        Genesis {
            protocol: ProtocolId::new("pbft"),
            f: 1,
            members: (0..4).map(|i| Member { sign: key(i), link: key(10 + i) }).collect(),
            client_auth: ClientAuth::Signature,
            bodies: BodyLimits::default(),
            client_window: 16_384,
            clients_max: 4_096,
            checkpoint_every: 128,
            window: 256,
            application: "kv 1".to_owned(),
            admin: key(99),
            clients: vec![key(50)],
            params: String::new(),
            salt: [7; 32],
            base: None,
        }
    }

    #[test]
    fn cluster_id_binds_every_field() {
        let base = genesis();
        assert_eq!(base.check(), Ok(()));
        assert_eq!(Genesis::from_bytes(&base.to_bytes()).as_ref(), Ok(&base));
        type Change = fn(&mut Genesis);
        let changes: Vec<Change> = vec![
            |g| g.protocol = ProtocolId::new("echo"),
            |g| g.f = 0,
            |g| g.members[0].link = PublicKey([77; 32]),
            |g| g.client_auth = ClientAuth::None,
            |g| g.bodies.reply_bytes_max += 1,
            |g| g.client_window += 1,
            |g| g.clients_max += 1,
            |g| g.checkpoint_every *= 2,
            |g| g.window *= 2,
            |g| g.application.push('x'),
            |g| g.admin = PublicKey([98; 32]),
            |g| g.clients.clear(),
            |g| g.params.push('x'),
            |g| g.salt[0] = 8,
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut other = base.clone();
            change(&mut other);
            assert_ne!(other.cluster_id(), base.cluster_id(), "change {i}");
        }
    }

    #[test]
    fn window_has_at_least_two_checkpoint_intervals() {
        for (every, window, good) in [(128, 256, true), (128, 128, false), (128, 300, false), (1, 4, false)] {
            let genesis = Genesis { checkpoint_every: every, window, ..genesis() };
            assert_eq!(genesis.check().is_ok(), good, "K={every} L={window}");
        }
    }
}
