//! The fields of `cluster.toml`, with the texts that explain them in files.

use super::reader::{Change, Field};

/// See [`Field::about`].
pub const LINK_AUTH: Field = Field {
    name: "link_auth",
    about: "Protection of connections: \"tls\", or \"plain\" for benchmarks: such nodes need --insecure.",
    example: "\"tls\"",
    change: Change::Everywhere,
};
/// Name of the table of genesis.
pub const GENESIS: &str = "genesis";
/// Comment on the table of genesis.
pub const GENESIS_ABOUT: &str = "Values that must be equal everywhere, because they decide the validity of requests, or the \
    state. Their digest,\nwith the replicas' keys, is the identity of the cluster: another value makes another cluster.";
/// See [`Field::about`].
pub const PROTOCOL: Field = Field {
    name: "protocol",
    about: "The protocol that orders requests.",
    example: "\"pbft\"",
    change: Change::Never,
};
/// See [`Field::about`].
pub const F: Field = Field {
    name: "f",
    about: "Faulty replicas tolerated; at most as many as the protocol allows for so many replicas.",
    example: "1",
    change: Change::Never,
};
/// See [`Field::about`].
pub const AUTH: Field = Field {
    name: "client_auth",
    about: "Authentication of clients: \"signature\", or \"none\" for benchmarks: such nodes need --insecure.",
    example: "\"signature\"",
    change: Change::Never,
};
/// See [`Field::about`].
pub const REQUEST_BYTES: Field = Field {
    name: "request_bytes_max",
    about: "The largest request.",
    example: "\"256KiB\"",
    change: Change::Never,
};
/// See [`Field::about`].
pub const BUNDLE_REQUESTS: Field = Field {
    name: "bundle_requests_max",
    about: "Requests in one bundle at most.",
    example: "4096",
    change: Change::Never,
};
/// See [`Field::about`].
pub const BUNDLE_BYTES: Field = Field {
    name: "bundle_bytes_max",
    about: "The largest bundle of requests; at least the sum of request_bytes_max and 128 bytes.",
    example: "\"1MiB\"",
    change: Change::Never,
};
/// See [`Field::about`].
pub const BLOCK_BUNDLES: Field = Field {
    name: "block_bundles_max",
    about: "Bundles in one block at most.",
    example: "256",
    change: Change::Never,
};
/// See [`Field::about`].
pub const BLOCK_REQUESTS: Field = Field {
    name: "block_requests_max",
    about: "Requests in one block at most. A single bundle always fits.",
    example: "1048576",
    change: Change::Never,
};
/// See [`Field::about`].
pub const BLOCK_BYTES: Field = Field {
    name: "block_bytes_max",
    about: "The largest block. A single bundle always fits.",
    example: "\"4MiB\"",
    change: Change::Never,
};
/// See [`Field::about`].
pub const REPLY_BYTES: Field = Field {
    name: "reply_bytes_max",
    about: "The largest result of one bundle.",
    example: "\"1MiB\"",
    change: Change::Never,
};
/// See [`Field::about`].
pub const CLIENT_WINDOW: Field = Field {
    name: "client_window",
    about: "Bundles that one session may have in flight.",
    example: "16384",
    change: Change::Never,
};
/// See [`Field::about`].
pub const CLIENTS_MAX: Field = Field {
    name: "clients_max",
    about: "Sessions that are open at the same time. A further session ends the one that was used least recently.",
    example: "4096",
    change: Change::Never,
};
/// See [`Field::about`].
pub const CHECKPOINT_EVERY: Field = Field {
    name: "checkpoint_every",
    about: "Blocks between two checkpoints (K).",
    example: "128",
    change: Change::Never,
};
/// See [`Field::about`].
pub const WINDOW: Field = Field {
    name: "window",
    about: "Blocks above the last stable checkpoint that may be in use (L): a multiple of checkpoint_every, at least twice it.",
    example: "256",
    change: Change::Never,
};
/// See [`Field::about`].
pub const APPLICATION: Field = Field {
    name: "application",
    about: "Name and version of the service.",
    example: "\"kv 1\"",
    change: Change::Never,
};
/// See [`Field::about`].
pub const ADMIN: Field = Field {
    name: "admin",
    about: "Key of the client that may register the keys of others.",
    example: "\"0123…\"",
    change: Change::Never,
};
/// See [`Field::about`].
pub const CLIENTS: Field = Field {
    name: "clients",
    about: "Keys of clients that are registered from the start.",
    example: "[]",
    change: Change::Never,
};
/// See [`Field::about`].
pub const SALT: Field = Field {
    name: "salt",
    about: "Random bytes: no two clusters have the same identity.",
    example: "\"0123…\"",
    change: Change::Never,
};
/// Name of the list of replicas.
pub const REPLICAS: &str = "replicas";
/// Comment on the list of replicas.
pub const REPLICAS_ABOUT: &str = "The replicas. `sign` and `link` are the public halves of replica.key and link.key and part \
    of the identity\nof the cluster; the addresses are not.";
/// See [`Field::about`].
pub const ID: Field = Field {
    name: "id",
    about: "Number of the replica: 0, 1, 2 … in order.",
    example: "0",
    change: Change::Never,
};
/// See [`Field::about`].
pub const SIGN: Field = Field {
    name: "sign",
    about: "Public key of the replica's statements.",
    example: "\"0123…\"",
    change: Change::Never,
};
/// See [`Field::about`].
pub const LINK: Field = Field {
    name: "link",
    about: "Public key of the replica's connections.",
    example: "\"0123…\"",
    change: Change::Never,
};
/// See [`Field::about`].
pub const PEERS: Field = Field {
    name: "peers",
    about: "Address at which other replicas reach it.",
    example: "\"127.0.0.1:4000\"",
    change: Change::AtStart,
};
/// See [`Field::about`].
pub const ADDRESS_CLIENTS: Field = Field {
    name: "clients",
    about: "Address at which clients reach it.",
    example: "\"127.0.0.1:4001\"",
    change: Change::AtStart,
};

/// Fields outside all tables, in the order of generated files.
pub const CLUSTER_FIELDS: [&Field; 1] = [&LINK_AUTH];
/// Fields of genesis, in the order of generated files.
pub const GENESIS_FIELDS: [&Field; 18] = [
    &PROTOCOL,
    &F,
    &AUTH,
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
    &APPLICATION,
    &ADMIN,
    &CLIENTS,
    &SALT,
];
/// Fields of each replica, in the order of generated files.
pub const REPLICA_FIELDS: [&Field; 5] = [&ID, &SIGN, &LINK, &PEERS, &ADDRESS_CLIENTS];

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
