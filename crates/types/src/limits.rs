//! Every bound on what a peer or a client can make a node hold, with its name.
//!
//! Beyond a bound the sender hears of it or its connection is closed, is counted, and nobody else notices.

/// Replicas in a committee at most.
pub const REPLICAS_MAX: usize = 256;

/// Bytes of a frame on the consensus lane at most.
pub const FRAME_CONSENSUS_BYTES_MAX: usize = 16 << 20;
/// Bytes of a frame on any other lane, and of a client's frame, at most.
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
/// Client keys registered by one request at most.
pub const REGISTER_KEYS_MAX: usize = 1_000;
/// Client keys registered in all at most.
pub const KEYS_MAX: usize = 1 << 20;
/// Sessions that one client may have open: opening more evicts its own, not those of others.
pub const SESSIONS_PER_CLIENT_MAX: usize = 256;

/// Bytes of outcomes kept for retransmissions, shared among the open sessions.
pub const KEPT_BYTES_TOTAL: usize = 16 << 20;
/// Share of one session in [`KEPT_BYTES_TOTAL`] at least, however many sessions are open.
pub const KEPT_SESSION_BYTES_MIN: usize = 16 << 10;
/// Share of one session in [`KEPT_BYTES_TOTAL`] at most, however few sessions are open.
pub const KEPT_SESSION_BYTES_MAX: usize = 2 << 20;
/// Bytes that a kept outcome counts for beyond its own.
pub const KEPT_OVERHEAD_BYTES: usize = 128;

/// Bytes of bundles that wait in the pool at most; beyond it clients hear `Busy`.
pub const POOL_BYTES_MAX: usize = 64 << 20;
/// Bytes of bundles that one peer may have in the pool although nobody waits for them: a full block.
pub const POOL_PEER_IDLE_BYTES_MAX: usize = 4 << 20;
/// Bundles that wait in the pool at most.
pub const POOL_BUNDLES_MAX: usize = 65_536;
/// Bytes that one client may have waiting in the pool; twice as much with what peers have handed over.
pub const POOL_CLIENT_BYTES_MAX: usize = 16 << 20;
/// Bundles that one client may have waiting in the pool; twice as many with what peers have handed over.
pub const POOL_CLIENT_BUNDLES_MAX: usize = 16_384;

/// Heights that one STATUS of PBFT names as missing at most; the lowest come first.
pub const STATUS_HEIGHTS_MAX: usize = 64;
/// Blocks that are decided and not yet executed, at which the leader stops proposing.
pub const EXECUTE_LAG_MAX: u64 = 32;
/// Blocks whose bodies a replica fetches at the same time at most, unless the window is large.
pub const WANTED_MAX: usize = 1_024;
/// Decided ids in one catch-up answer at most.
pub const DECIDED_PER_ANSWER_MAX: usize = 256;
/// Blocks in the answer to a question for one: itself and ancestors.
pub const FETCH_PATH_BLOCKS_MAX: usize = 16;
/// Bytes of them, when they are more than one.
pub const FETCH_PATH_BYTES_MAX: usize = 1 << 20;
/// Catch-up blocks that one peer may have asked for and not yet received.
pub const FETCH_PER_PEER_MAX: usize = 32;
/// Frames of blocks after which a peer that asks for more of them in the same turn is told that they are not here.
pub const FETCH_FRAMES_MAX: usize = 8_192;
/// Decided ids after which a peer that asks for more of them in the same turn is not answered. Whoever catches up asks again
/// when it has used what it has got.
pub const DECIDED_PER_TURN_MAX: usize = 16 * DECIDED_PER_ANSWER_MAX;
/// Questions of one peer that wait for a read of the log; whoever asks for more is told that it is not here. A laggard
/// has [`FETCH_PER_PEER_MAX`] under way, and asks for some of them again before they are answered.
pub const LOADS_PER_PEER_MAX: usize = 4 * FETCH_PER_PEER_MAX;
/// Signatures, certificates and proofs that one message may claim, per replica of the committee.
pub const CLAIMS_PER_REPLICA_MAX: usize = 4;
/// Certificates remembered as checked.
pub const CERTIFICATES_REMEMBERED_MAX: usize = 4_096;
/// Client keys remembered in prepared form.
pub const CLIENT_KEYS_REMEMBERED_MAX: usize = 16_384;
/// What a bundle counts for beside its bytes where bundles wait: small ones take more than those, of memory and of
/// time.
pub const BUNDLE_OVERHEAD_BYTES: usize = 1_024;
/// Bytes of bundles, each with [`BUNDLE_OVERHEAD_BYTES`], that one peer may have waiting for the intake.
pub const INTAKE_PEER_BYTES_MAX: usize = 32 << 20;
/// Bytes of bundles of clients, counted in the same way, that may wait for the intake; twice as much where each
/// connection has one bundle there.
pub const INTAKE_CLIENT_BYTES_MAX: usize = 32 << 20;
/// Those of one client's connection.
pub const INTAKE_CONNECTION_BYTES_MAX: usize = 8 << 20;

/// Probes of one peer that are remembered while they are unanswered.
pub const PROBES_UNANSWERED_MAX: usize = 64;
/// Round trips of probes, over all peers, of which status tells the longest.
pub const ROUND_TRIPS_MAX: usize = 4_096;
/// Comparisons of one peer's clock with the own one that are remembered.
pub const CLOCK_SAMPLES_MAX: usize = 32;

/// Bytes that one peer's lane keeps for sending again after a reconnect.
pub const RESEND_BYTES_MAX: usize = 64 << 20;
/// Frames that one peer's lane keeps for sending again after a reconnect.
pub const RESEND_FRAMES_MAX: usize = 65_536;
/// Connections of clients that a node serves at the same time.
pub const CLIENT_CONNECTIONS_MAX: usize = 4_096;
/// Clients that one connection may speak for.
pub const ATTACHED_PER_CONNECTION_MAX: usize = 16_384;
/// Clients that all connections together may ask replies for without proof that they are theirs; beyond it the
/// connection that asks for most is cut off.
pub const ATTACHED_MAX: usize = 1 << 18;
/// Connections that one client's replies go to.
pub const CONNECTIONS_PER_CLIENT_MAX: usize = 4;
/// Bytes that wait to be written to one client's connection; a client that does not read is cut off.
pub const CLIENT_OUTGOING_BYTES_MAX: usize = 64 << 20;
/// Bytes that wait to be written to all clients' connections; beyond it the one with most is cut off.
pub const CLIENTS_OUTGOING_BYTES_MAX: usize = 256 << 20;
/// Bytes of frames that clients have begun and not finished; beyond it the one with most is cut off.
pub const CLIENTS_UNFINISHED_BYTES_MAX: usize = 64 << 20;
/// Time that a connection has for its handshake and first frame.
pub const HANDSHAKE_NS_MAX: u64 = 10_000_000_000;
/// Status requests that one client connection may make in a second.
pub const STATUS_PER_SECOND_MAX: u32 = 10;
/// Distinct reasons counted for one peer in the table of rejections.
pub const REJECT_REASONS_MAX: usize = 64;
/// Addresses in the table of rejections; what comes later is counted as `others`. Replicas always have a row.
pub const REJECT_PEERS_MAX: usize = 1_024;

/// Bytes of an error or reason text on the wire at most.
pub const REASON_BYTES_MAX: usize = 256;
/// Bytes of a status answer at most.
pub const STATUS_BYTES_MAX: usize = 1 << 20;
