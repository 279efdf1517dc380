//! The fields of `cluster.toml`, with the texts that explain them in files.

/// Declares the fields of one table of a configuration file, and the list of them in the order of generated files.
///
/// A row has the name of the constant, the name of the field, an example as TOML, the
/// [`Change`](crate::config::reader::Change), and the meaning of the field.
#[macro_export]
macro_rules! config_fields {
    ($(#[$list_attribute:meta])* $visibility:vis $list:ident of
     $($name:ident: $field:literal, $example:literal, $change:ident, $about:literal;)+) => {
        $(
            #[doc = $about]
            $visibility const $name: $crate::config::reader::Field = $crate::config::reader::Field {
                name: $field,
                about: $about,
                example: $example,
                change: $crate::config::reader::Change::$change,
            };
        )+
        $(#[$list_attribute])*
        $visibility const $list: &[&$crate::config::reader::Field] = &[$(&$name),+];
    };
}

config_fields! {
    /// Fields outside all tables, in the order of generated files.
    pub CLUSTER_FIELDS of
    LINK_AUTH: "link_auth", "\"tls\"", Everywhere,
        "Protection of connections: \"tls\", or \"plain\" for benchmarks: such nodes need --insecure.";
}

/// Name of the table of genesis.
pub const GENESIS: &str = "genesis";
/// Comment on the table of genesis.
pub const GENESIS_ABOUT: &str = "Values that must be equal everywhere, because they decide the validity of requests, or the \
    state. Their digest,\nwith the replicas' keys, is the identity of the cluster: another value makes another cluster.";

config_fields! {
    /// Fields of genesis, in the order of generated files.
    pub GENESIS_FIELDS of
    PROTOCOL: "protocol", "\"pbft\"", Never, "The protocol that orders requests.";
    F: "f", "1", Never, "Faulty replicas tolerated; at most as many as the protocol allows for so many replicas.";
    AUTH: "client_auth", "\"signature\"", Never,
        "Authentication of clients: \"signature\", or \"none\" for benchmarks: such nodes need --insecure.";
    REQUEST_BYTES: "request_bytes_max", "\"256KiB\"", Never, "The largest request.";
    BUNDLE_REQUESTS: "bundle_requests_max", "4096", Never, "Requests in one bundle at most.";
    BUNDLE_BYTES: "bundle_bytes_max", "\"1MiB\"", Never,
        "The largest bundle of requests; at least the sum of request_bytes_max and 128 bytes.";
    BLOCK_BUNDLES: "block_bundles_max", "256", Never, "Bundles in one block at most.";
    BLOCK_REQUESTS: "block_requests_max", "1048576", Never,
        "Requests in one block at most. A single bundle always fits.";
    BLOCK_BYTES: "block_bytes_max", "\"4MiB\"", Never, "The largest block. A single bundle always fits.";
    REPLY_BYTES: "reply_bytes_max", "\"1MiB\"", Never, "The largest result of one bundle.";
    CLIENT_WINDOW: "client_window", "16384", Never, "Bundles that one session may have in flight.";
    CLIENTS_MAX: "clients_max", "4096", Never,
        "Sessions that are open at the same time. A further session ends the one that was used least recently.";
    CHECKPOINT_EVERY: "checkpoint_every", "128", Never, "Blocks between two checkpoints (K).";
    WINDOW: "window", "256", Never,
        "Blocks above the last stable checkpoint that may be in use (L): a multiple of checkpoint_every, at least twice it.";
    APPLICATION: "application", "\"kv 1\"", Never, "Name and version of the service.";
    ADMIN: "admin", "\"0123…\"", Never, "Key of the client that may register the keys of others.";
    CLIENTS: "clients", "[]", Never, "Keys of clients that are registered from the start.";
    SALT: "salt", "\"0123…\"", Never, "Random bytes: no two clusters have the same identity.";
    BASE: "base", "\"0123…\"", Never,
        "Digest of the state that a cluster made by `quorate restore` begins with. Other clusters do not have the field.";
}

/// Name of the list of replicas.
pub const REPLICAS: &str = "replicas";
/// Comment on the list of replicas.
pub const REPLICAS_ABOUT: &str = "The replicas. `sign` and `link` are the public halves of replica.key and link.key and part \
    of the identity\nof the cluster; the addresses are not.";

config_fields! {
    /// Fields of each replica, in the order of generated files.
    pub REPLICA_FIELDS of
    ID: "id", "0", Never, "Number of the replica: 0, 1, 2 … in order.";
    SIGN: "sign", "\"0123…\"", Never, "Public key of the replica's statements.";
    LINK: "link", "\"0123…\"", Never, "Public key of the replica's connections.";
    PEERS: "peers", "\"127.0.0.1:4000\"", AtStart, "Address at which other replicas reach it.";
    ADDRESS_CLIENTS: "clients", "\"127.0.0.1:4001\"", AtStart, "Address at which clients reach it.";
}

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
