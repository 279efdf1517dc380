//! Named bounds on everything that a peer or a client can make a node hold.
//!
//! A sender that exceeds a bound is counted. It receives a refusal, or its connection is closed. No other peer or
//! client is affected.

/// The largest number of replicas in a committee.
pub const REPLICAS_MAX: usize = 256;

/// The largest number of bytes of a frame on the consensus lane.
pub const FRAME_CONSENSUS_BYTES_MAX: usize = 16 << 20;
/// The largest number of bytes of a frame on any other lane, and of a client's frame.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

/// Ceiling for the genesis setting of bytes of one request.
pub const REQUEST_BYTES_CEILING: u32 = 1 << 20;
/// Ceiling for the genesis setting of requests in one bundle.
pub const BUNDLE_REQUESTS_CEILING: u32 = 1 << 16;
/// Ceiling for the genesis setting of bytes of one bundle. A bundle must fit into one frame.
pub const BUNDLE_BYTES_CEILING: u32 = 3 << 20;
/// Ceiling for the genesis setting of bundles in one block.
pub const BLOCK_BUNDLES_CEILING: u32 = 4096;
/// Ceiling for the genesis setting of requests in one block.
pub const BLOCK_REQUESTS_CEILING: u32 = 1 << 28;
/// Ceiling for the genesis setting of bytes of one block's bodies.
pub const BLOCK_BYTES_CEILING: u32 = 32 << 20;
/// Ceiling for the genesis setting of bytes of one bundle's results. A reply must fit into one frame.
pub const REPLY_BYTES_CEILING: u32 = 3 << 20;
/// Ceiling for the genesis setting of open sessions.
pub const CLIENTS_CEILING: u32 = 1 << 20;
/// Ceiling for the genesis setting of the window of bundle numbers.
pub const WINDOW_CEILING: u32 = 1 << 20;
/// The largest number of client keys in one registration.
pub const REGISTER_KEYS_MAX: usize = 1_000;
/// The largest number of registered client keys.
pub const KEYS_MAX: usize = 1 << 20;
/// Sessions that one client may have open. An opening beyond it evicts a session of the same client.
pub const SESSIONS_PER_CLIENT_MAX: usize = 256;

/// Bytes of outcomes kept for retransmissions, shared among the open sessions.
pub const KEPT_BYTES_TOTAL: usize = 16 << 20;
/// The smallest share of one session in [`KEPT_BYTES_TOTAL`], for any number of open sessions.
pub const KEPT_SESSION_BYTES_MIN: usize = 16 << 10;
/// The largest share of one session in [`KEPT_BYTES_TOTAL`], for any number of open sessions.
pub const KEPT_SESSION_BYTES_MAX: usize = 2 << 20;
/// Bytes that a kept outcome counts in addition to its own.
pub const KEPT_OVERHEAD_BYTES: usize = 128;

/// The largest number of bytes of pending bundles in the pool. Beyond it clients receive `Busy`.
pub const POOL_BYTES_MAX: usize = 64 << 20;
/// Bytes of bundles from one peer that the pool holds without a client that waits for them: a full block.
pub const POOL_PEER_IDLE_BYTES_MAX: usize = 4 << 20;
/// The largest number of pending bundles in the pool.
pub const POOL_BUNDLES_MAX: usize = 65_536;
/// Bytes of pending bundles of one client in the pool. The bound is twice that with bundles that peers have handed
/// over.
pub const POOL_CLIENT_BYTES_MAX: usize = 16 << 20;
/// Pending bundles of one client in the pool. The bound is twice that with bundles that peers have handed over.
pub const POOL_CLIENT_BUNDLES_MAX: usize = 16_384;

/// The largest number of missing heights that one STATUS of PBFT names; the lowest come first.
pub const STATUS_HEIGHTS_MAX: usize = 64;
/// The number of decided blocks that wait for execution at which the leader stops proposing.
pub const EXECUTE_LAG_MAX: u64 = 32;
/// The largest number of blocks whose bodies a replica fetches at the same time, unless the window is large.
pub const WANTED_MAX: usize = 1_024;
/// The largest number of decided ids in one catch-up answer.
pub const DECIDED_PER_ANSWER_MAX: usize = 256;
/// The largest number of blocks in the answer to a request for one: the block and its ancestors.
pub const FETCH_PATH_BLOCKS_MAX: usize = 16;
/// The largest number of bytes of an answer with more than one block.
pub const FETCH_PATH_BYTES_MAX: usize = 1 << 20;
/// The largest number of catch-up blocks that one peer may have requested and not yet received.
pub const FETCH_PER_PEER_MAX: usize = 32;
/// Frames of blocks that one peer receives in a turn. Further requests in the same turn are answered with "not
/// available".
pub const FETCH_FRAMES_MAX: usize = 8_192;
/// Decided ids that one peer receives in a turn. Further requests in the same turn are not answered. A replica that
/// catches up asks again when it has used the ids.
pub const DECIDED_PER_TURN_MAX: usize = 16 * DECIDED_PER_ANSWER_MAX;
/// Requests of one peer that wait for a read of the log. Further requests are answered with "not available". A
/// laggard has [`FETCH_PER_PEER_MAX`] requests under way, and repeats some of them before they are answered.
pub const LOADS_PER_PEER_MAX: usize = 4 * FETCH_PER_PEER_MAX;
/// The largest number of chunks of a snapshot. Their ids must fit into one frame.
pub const SNAPSHOT_CHUNKS_MAX: usize = 65_536;
/// The largest number of bytes of the header of a snapshot.
pub const SNAPSHOT_HEADER_BYTES_MAX: usize = 64 << 10;
/// The largest number of bytes of a chunk in one message.
pub const CHUNK_PIECE_BYTES_MAX: usize = 256 << 10;
/// Parts of chunks that one peer may have requested and not yet received. Further requests are not answered.
pub const PIECES_PER_PEER_MAX: usize = 64;
/// Bytes of chunks that a replica sends in a second to all peers that receive a state.
pub const STATE_BYTES_PER_SECOND: u64 = 32 << 20;
/// Signatures, certificates and proofs that one message may contain, per replica of the committee.
pub const CLAIMS_PER_REPLICA_MAX: usize = 4;
/// Verified certificates that a replica remembers.
pub const CERTIFICATES_REMEMBERED_MAX: usize = 4_096;
/// Client keys that a replica remembers in prepared form.
pub const CLIENT_KEYS_REMEMBERED_MAX: usize = 16_384;
/// Bytes that each waiting bundle counts in addition to its own. A small bundle costs more memory and time than its
/// bytes suggest.
pub const BUNDLE_OVERHEAD_BYTES: usize = 1_024;
/// Bytes of one peer's bundles that wait for the intake, each with [`BUNDLE_OVERHEAD_BYTES`].
pub const INTAKE_PEER_BYTES_MAX: usize = 32 << 20;
/// Bytes of all clients' bundles that wait for the intake, counted in the same way. The bound is twice that where each
/// connection has only one bundle waiting.
pub const INTAKE_CLIENT_BYTES_MAX: usize = 32 << 20;
/// Bytes of bundles from one client's connection that wait for the intake, counted in the same way.
pub const INTAKE_CONNECTION_BYTES_MAX: usize = 8 << 20;

/// Unanswered probes to one peer that a replica remembers.
pub const PROBES_UNANSWERED_MAX: usize = 64;
/// Round trips of probes that a replica remembers, over all peers. Status reports the longest of them.
pub const ROUND_TRIPS_MAX: usize = 4_096;
/// Comparisons of one peer's clock with the own clock that a replica remembers.
pub const CLOCK_SAMPLES_MAX: usize = 32;

/// Bytes that one peer's lane keeps for sending again after a reconnect.
pub const RESEND_BYTES_MAX: usize = 64 << 20;
/// Frames that one peer's lane keeps for sending again after a reconnect.
pub const RESEND_FRAMES_MAX: usize = 65_536;
/// Connections of clients that a node serves at the same time.
pub const CLIENT_CONNECTIONS_MAX: usize = 4_096;
/// Clients whose replies one connection may request.
pub const ATTACHED_PER_CONNECTION_MAX: usize = 16_384;
/// Clients whose replies all connections together may request without a proof of ownership. Beyond it the connection
/// with the most such clients is closed.
pub const ATTACHED_MAX: usize = 1 << 18;
/// The largest number of connections that receive one client's replies.
pub const CONNECTIONS_PER_CLIENT_MAX: usize = 4;
/// Bytes that wait to be written to one client's connection. Beyond it the connection is closed, because its client
/// does not read.
pub const CLIENT_OUTGOING_BYTES_MAX: usize = 64 << 20;
/// Bytes that wait to be written to all clients' connections. Beyond it the connection with the most bytes is closed.
pub const CLIENTS_OUTGOING_BYTES_MAX: usize = 256 << 20;
/// Bytes of unfinished frames from all clients. Beyond it the connection with the most bytes is closed.
pub const CLIENTS_UNFINISHED_BYTES_MAX: usize = 64 << 20;
/// Nanoseconds that a connection has for its handshake and first frame.
pub const HANDSHAKE_NS_MAX: u64 = 10_000_000_000;
/// Status requests that one client connection may make in a second.
pub const STATUS_PER_SECOND_MAX: u32 = 10;
/// Requests to stop that one client connection may make in a second. Each costs the check of a signature.
pub const STOPS_PER_SECOND_MAX: u32 = 10;
/// Questions for the order of bundles that one client connection may ask in a second.
pub const ORDER_ASKS_PER_SECOND_MAX: u32 = 1_000;
/// Questions for the order of bundles of one client connection that wait for a decision. A newer question replaces the
/// oldest one, which is answered with `Busy`.
pub const ORDER_ASKS_WAITING_MAX: usize = 64;
/// The largest number of links in a proof of order.
pub const ORDER_LINKS_MAX: usize = 4_096;
/// Distinct reasons counted for one peer in the table of rejections.
pub const REJECT_REASONS_MAX: usize = 64;
/// Addresses in the table of rejections. Later ones are counted as `others`. Replicas always have a row.
pub const REJECT_PEERS_MAX: usize = 1_024;

/// The largest number of bytes of an error or reason text on the wire.
pub const REASON_BYTES_MAX: usize = 256;
/// The largest number of bytes of a status answer.
pub const STATUS_BYTES_MAX: usize = 1 << 20;
