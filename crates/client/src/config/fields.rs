//! The fields of `cluster.toml`, with the texts that explain them in files.

use super::reader::Field;

/// See [`Field::about`].
pub const LINK_AUTH: Field = Field {
    name: "link_auth",
    about: "How connections are protected: \"tls\", or \"plain\" (benchmarks only; nodes start with --insecure alone).",
    example: "\"tls\"",
};
/// Name of the table of genesis.
pub const GENESIS: &str = "genesis";
/// Comment on the table of genesis.
pub const GENESIS_ABOUT: &str = "What must be equal everywhere, because it decides what is valid and what the state is. Its \
    digest, with the\nreplicas' keys, is the identity of the cluster: changing anything here makes another one.";
/// See [`Field::about`].
pub const PROTOCOL: Field =
    Field { name: "protocol", about: "The protocol that orders requests.", example: "\"pbft\"" };
/// See [`Field::about`].
pub const F: Field = Field { name: "f", about: "Faulty replicas tolerated.", example: "1" };
/// See [`Field::about`].
pub const AUTH: Field = Field {
    name: "client_auth",
    about: "How clients prove who they are: \"signature\", or \"none\" (benchmarks only).",
    example: "\"signature\"",
};
/// See [`Field::about`].
pub const REQUEST_BYTES: Field =
    Field { name: "request_bytes_max", about: "The largest request.", example: "\"256KiB\"" };
/// See [`Field::about`].
pub const BUNDLE_REQUESTS: Field =
    Field { name: "bundle_requests_max", about: "Requests in one bundle at most.", example: "4096" };
/// See [`Field::about`].
pub const BUNDLE_BYTES: Field =
    Field { name: "bundle_bytes_max", about: "The largest bundle.", example: "\"1MiB\"" };
/// See [`Field::about`].
pub const BLOCK_BUNDLES: Field =
    Field { name: "block_bundles_max", about: "Bundles in one block at most.", example: "256" };
/// See [`Field::about`].
pub const BLOCK_REQUESTS: Field = Field {
    name: "block_requests_max",
    about: "Requests in one block at most. A single bundle always fits.",
    example: "1048576",
};
/// See [`Field::about`].
pub const BLOCK_BYTES: Field = Field {
    name: "block_bytes_max",
    about: "The largest block. A single bundle always fits.",
    example: "\"4MiB\"",
};
/// See [`Field::about`].
pub const REPLY_BYTES: Field =
    Field { name: "reply_bytes_max", about: "The largest result of one bundle.", example: "\"1MiB\"" };
/// See [`Field::about`].
pub const CLIENT_WINDOW: Field =
    Field { name: "client_window", about: "Bundles that one session may have in flight.", example: "16384" };
/// See [`Field::about`].
pub const CLIENTS_MAX: Field = Field {
    name: "clients_max",
    about: "Sessions that are open at the same time. Beyond it the one that was used least recently ends.",
    example: "4096",
};
/// See [`Field::about`].
pub const CHECKPOINT_EVERY: Field =
    Field { name: "checkpoint_every", about: "Blocks between two checkpoints (K).", example: "128" };
/// See [`Field::about`].
pub const WINDOW: Field = Field {
    name: "window",
    about: "Blocks above the last stable checkpoint that may be in use (L): a multiple of checkpoint_every.",
    example: "256",
};
/// See [`Field::about`].
pub const APPLICATION: Field =
    Field { name: "application", about: "Name and version of the service.", example: "\"kv 1\"" };
/// See [`Field::about`].
pub const ADMIN: Field = Field {
    name: "admin",
    about: "Key of the client that may register the keys of others.",
    example: "\"0123…\"",
};
/// See [`Field::about`].
pub const CLIENTS: Field =
    Field { name: "clients", about: "Keys of clients that are registered from the start.", example: "[]" };
/// See [`Field::about`].
pub const SALT: Field =
    Field { name: "salt", about: "Random, so that no two clusters are the same.", example: "\"0123…\"" };
/// Name of the list of replicas.
pub const REPLICAS: &str = "replicas";
/// Comment on the list of replicas.
pub const REPLICAS_ABOUT: &str = "The replicas. `sign` and `link` are the public halves of replica.key and link.key and part \
    of the identity\nof the cluster; the addresses are not.";
/// See [`Field::about`].
pub const ID: Field = Field { name: "id", about: "0, 1, 2 … in order.", example: "0" };
/// See [`Field::about`].
pub const SIGN: Field =
    Field { name: "sign", about: "The key that signs its statements.", example: "\"0123…\"" };
/// See [`Field::about`].
pub const LINK: Field =
    Field { name: "link", about: "The key that it shows on connections.", example: "\"0123…\"" };
/// See [`Field::about`].
pub const PEERS: Field =
    Field { name: "peers", about: "Where other replicas reach it.", example: "\"127.0.0.1:4000\"" };
/// See [`Field::about`].
pub const ADDRESS_CLIENTS: Field =
    Field { name: "clients", about: "Where clients reach it.", example: "\"127.0.0.1:4001\"" };

/// Names of the limits that a cluster can be made with: the fields of genesis that no other option decides.
#[must_use]
pub fn limit_names() -> [&'static str; 11] {
    [
        &REQUEST_BYTES,
        &BUNDLE_REQUESTS,
        &BUNDLE_BYTES,
        &BLOCK_BUNDLES,
        &BLOCK_REQUESTS,
        &BLOCK_BYTES,
        &REPLY_BYTES,
        &CLIENT_WINDOW,
        &CLIENTS_MAX,
        &CHECKPOINT_EVERY,
        &WINDOW,
    ]
    .map(|field| field.name)
}
