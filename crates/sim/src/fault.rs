//! The faults of the world, by name. Documentation, command line and random runs draw from this one list.
//!
//! The list also has faults that cannot occur within one process. Their entry names the test with real processes, or
//! states that there is none yet. The code that causes a fault defines its details: [`crate::NetworkFault`] for the
//! network, [`crate::Plan`] for machines, [`crate::Byzantine`] for Byzantine replicas.

use crate::byzantine_kind::Byzantine;
use crate::named_enum::named_enum;
use std::str::FromStr;

named_enum! {
    /// Classes of faults.
    pub enum FaultClass {
        /// The links between machines.
        Network = "network",
        /// A process or its machine.
        Process = "process",
        /// The bytes on a disk.
        Disk = "disk",
        /// A Byzantine replica.
        Byzantine = "Byzantine replica",
        /// A client that breaks rules or disappears.
        Client = "client",
        /// A violated assumption of the protocol.
        Model = "model",
        /// The people who operate a cluster.
        Operator = "operator",
    }
}

/// The origin of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultSource {
    /// Standard runs draw it.
    Drawn,
    /// Standard runs draw Byzantine hosts that cause it.
    Hosts(&'static [Byzantine]),
    /// An option of the command line causes it.
    Asked(&'static str),
    /// Tests with real processes cover it: `file::test`, below `crates/lab/tests/it`.
    Processes(&'static [&'static str]),
    /// Nothing covers it yet, for this reason.
    Later(&'static str),
}

macro_rules! faults {
    ($($(#[doc = $about:literal])+ $variant:ident = $name:literal, $class:ident, $source:expr;)+) => {
        named_enum! {
            /// The faults of the world, class by class.
            pub enum Fault {
                $($(#[doc = $about])+ $variant = $name,)+
            }
        }

        impl Fault {
            /// Returns the fault's class.
            #[must_use]
            pub const fn class(self) -> FaultClass {
                match self { $(Self::$variant => FaultClass::$class,)+ }
            }

            /// Returns a description in a sentence.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => concat!($($about),+).trim_ascii(),)+ }
            }

            /// Returns the fault's origin.
            #[must_use]
            pub const fn source(self) -> FaultSource {
                match self { $(Self::$variant => $source,)+ }
            }
        }
    };
}

use Byzantine as B;

faults! {
    /// Some messages are lost.
    Loss = "loss", Network, FaultSource::Drawn;
    /// All messages of some places take longer.
    Delay = "delay", Network, FaultSource::Drawn;
    /// Delays vary so much that messages overtake each other.
    Reordering = "reordering", Network, FaultSource::Drawn;
    /// Some messages arrive twice.
    Duplication = "duplication", Network, FaultSource::Drawn;
    /// Old packets arrive again.
    OldPackets = "old packets", Network, FaultSource::Drawn;
    /// Messages pass in one direction only.
    OneWay = "one way", Network, FaultSource::Drawn;
    /// The network splits the replicas into two parts.
    Partition = "partition", Network, FaultSource::Drawn;
    /// One replica is cut off from all others.
    Isolation = "isolation", Network, FaultSource::Drawn;
    /// Each current leader in turn is cut off.
    LeaderCut = "leader cut off", Network, FaultSource::Drawn;
    /// A link delivers nothing until a given time, and then everything.
    Clog = "clog", Network, FaultSource::Drawn;
    /// The link between two replicas is slow.
    SlowLink = "slow link", Network, FaultSource::Drawn;
    /// Connections break repeatedly.
    Churn = "churn", Network, FaultSource::Drawn;
    /// A connection is closed and one end learns of it only seconds later.
    HalfOpen = "half-open", Network, FaultSource::Drawn;
    /// Some bytes arrive changed; links detect it.
    CorruptFrame = "corrupt frame", Network, FaultSource::Drawn;
    /// Streams arrive a few bytes at a time.
    SlowLoris = "slow loris", Network, FaultSource::Drawn;
    /// A frame's header announces more bytes than any frame may have.
    OversizeFrame = "oversize frame", Network, FaultSource::Hosts(&[B::Flood]);
    /// A replica sends far more frames than its peers can use.
    Flood = "flood", Network, FaultSource::Hosts(&[B::Flood]);

    /// The process is killed and started again. Its unsynced writes remain in the cache of the machine.
    Kill = "kill", Process, FaultSource::Drawn;
    /// The process pauses for longer than any timeout, and continues.
    Pause = "pause", Process, FaultSource::Drawn;
    /// The process is killed repeatedly, soon after each start.
    RestartLoop = "restart loop", Process, FaultSource::Drawn;
    /// The wall clock is off by seconds after a restart, in either direction.
    ClockJump = "clock jump", Process, FaultSource::Drawn;
    /// A replica's time runs faster or slower than that of others.
    ClockDrift = "clock drift", Process, FaultSource::Drawn;
    /// A machine loses power and is started again.
    PowerCut = "power cut", Process, FaultSource::Drawn;
    /// A machine loses power between two steps of a turn.
    PowerCutInTurn = "power cut in turn", Process, FaultSource::Drawn;
    /// All machines lose power at once.
    PowerCutOfAll = "power cut of all", Process, FaultSource::Drawn;
    /// Execution takes five hundred times as long.
    SlowExecutor = "slow executor", Process, FaultSource::Drawn;
    /// The system kills a process that uses too much memory. Kills are tested, and so are the limits that prevent
    /// this one.
    OutOfMemory = "out of memory", Process, FaultSource::Processes(&["hostile/floods.rs::thousands_of_connections_and_frames_leave_no_memory", "kill.rs::killed_backup_recovers_under_load"]);
    /// A node is started with the binary of an earlier release.
    OldBinary = "old binary", Process, FaultSource::Later("there is no earlier release");
    /// A node is started with a wrong configuration.
    WrongConfig = "wrong configuration", Process, FaultSource::Processes(&["configuration.rs::value_outside_its_range_is_refused", "folders.rs::keys_that_differ_from_the_listed_ones_are_refused"]);

    /// A power cut leaves some sectors of a write and loses others.
    TornWrite = "torn write", Disk, FaultSource::Drawn;
    /// A power cut leaves no unsynced byte.
    LostWrite = "lost write", Disk, FaultSource::Drawn;
    /// A write goes to a wrong place.
    MisdirectedWrite = "misdirected write", Disk, FaultSource::Drawn;
    /// A bit of the last write flips.
    RotAtTail = "rot at the tail", Disk, FaultSource::Drawn;
    /// A bit in the middle of the log flips.
    RotInLog = "rot in the log", Disk, FaultSource::Drawn;
    /// A bit of a snapshot flips.
    RotInSnapshot = "rot in a snapshot", Disk, FaultSource::Drawn;
    /// Reads fail.
    ReadError = "read error", Disk, FaultSource::Drawn;
    /// A sync fails, and writes since the last sync may be lost.
    SyncError = "sync error", Disk, FaultSource::Drawn;
    /// The disk is full until somebody frees space.
    FullDisk = "full disk", Disk, FaultSource::Drawn;
    /// Writes and syncs take a hundred times as long.
    SlowDisk = "slow disk", Disk, FaultSource::Drawn;
    /// A replica recovers with an empty disk. With `--byzantine wiped` an honest one does so.
    Wiped = "wiped disk", Disk, FaultSource::Hosts(&[B::Rollback]);
    /// A replica recovers with an old image of its disk.
    RolledBack = "rolled back disk", Disk, FaultSource::Hosts(&[B::Rollback]);

    /// A replica sends nothing.
    Silence = "silence", Byzantine, FaultSource::Hosts(&[B::Mute]);
    /// A replica sends nothing to some peers, or nothing of some kinds.
    SelectiveSilence = "selective silence", Byzantine, FaultSource::Hosts(&[B::Mute, B::Favourites]);
    /// A leader proposes different blocks to different replicas.
    EquivocateProposal = "equivocate proposal", Byzantine, FaultSource::Hosts(&[B::Twin, B::Own]);
    /// A replica runs an attack that needs knowledge of the protocol, such as equivocation about proposals.
    OwnAttack = "own attack", Byzantine, FaultSource::Hosts(&[B::Own]);
    /// A replica votes for different blocks.
    EquivocateVote = "equivocate vote", Byzantine, FaultSource::Hosts(&[B::Twin, B::Rollback, B::Own]);
    /// Two conflicting branches grow.
    Fork = "fork", Byzantine, FaultSource::Hosts(&[B::Twin]);
    /// Old certificates are sent as if they were new.
    StaleCertificate = "stale certificate", Byzantine, FaultSource::Hosts(&[B::Mutate, B::Replay]);
    /// A statement names a view that its sender is not in.
    WrongView = "wrong view", Byzantine, FaultSource::Hosts(&[B::Mutate]);
    /// A replica resends old messages.
    Replay = "replay", Byzantine, FaultSource::Hosts(&[B::Replay]);
    /// A signature is invalid.
    InvalidSignature = "invalid signature", Byzantine, FaultSource::Hosts(&[B::Mutate]);
    /// A message has a valid signature and invalid content.
    BadContent = "bad content, well signed", Byzantine, FaultSource::Hosts(&[B::Mutate, B::Own]);
    /// A replica sends wrong blocks or states to peers that lag.
    LieInCatchUp = "lie in catch-up", Byzantine, FaultSource::Hosts(&[B::CatchUp]);
    /// A replica sends wrong replies to clients.
    LieToClients = "lie to clients", Byzantine, FaultSource::Hosts(&[B::Clients]);
    /// Every message arrives just before the others' timers expire.
    JustInTime = "just under the timeout", Byzantine, FaultSource::Hosts(&[B::Delay]);
    /// Two replicas with one key and one id.
    DoubleIdentity = "double identity", Byzantine, FaultSource::Hosts(&[B::Twin]);
    /// All f Byzantine replicas do the same at the same time.
    Coalition = "coalition of f", Byzantine, FaultSource::Drawn;
    /// The current leader is corrupted, up to f replicas in all.
    Adaptive = "adaptive", Byzantine, FaultSource::Hosts(&[B::Adaptive]);

    /// A client sends two bundles with one number, one after the other.
    DuplicateId = "duplicate id", Client, FaultSource::Drawn;
    /// Another client resends a client's bundle.
    ReplayedRequest = "replayed request", Client, FaultSource::Drawn;
    /// A bundle exceeds the size limit.
    OversizeRequest = "oversize request", Client, FaultSource::Drawn;
    /// A client sends bytes that are no message.
    MalformedRequest = "malformed request", Client, FaultSource::Drawn;
    /// A client sends different bundles with one number to different replicas.
    EquivocatingClient = "equivocating client", Client, FaultSource::Drawn;
    /// A client sends more bundles than may be in flight.
    ClientFlood = "client flood", Client, FaultSource::Drawn;
    /// A client's connections break in the middle of a request.
    Disconnect = "disconnect", Client, FaultSource::Drawn;
    /// No reply reaches any client, so all clients retry with all replicas, again and again.
    RetryStorm = "retry storm", Client, FaultSource::Drawn;

    /// Messages take longer than the bound of a synchronous protocol.
    BeyondDelta = "beyond delta", Model, FaultSource::Asked("--scenario \"beyond delta\"");
    /// More than f replicas are Byzantine. Only detection is promised, and the names of equivocators.
    TooManyLiars = "more than f", Model, FaultSource::Asked("--byzantine HOST:NUMBER");

    /// A replica has another genesis.
    WrongGenesis = "wrong genesis", Operator, FaultSource::Processes(&["hostile/peers.rs::strangers_on_the_port_of_peers_are_refused", "hostile/clients.rs::strangers_on_the_port_of_clients_are_refused"]);
    /// One key runs on two machines.
    SharedKey = "one key on two machines", Operator, FaultSource::Processes(&["operators.rs::one_key_on_two_machines_is_reported_and_harmless"]);
    /// An old backup replaces a disk.
    OldBackup = "restored from an old backup", Operator, FaultSource::Processes(&["operators.rs::replica_on_an_old_backup_reports_it_and_stays_out"]);
    /// A certificate expires.
    ExpiredCertificate = "expired certificate", Operator, FaultSource::Later("links ignore the dates of certificates");
    /// Keys and members change under load.
    Reconfiguration = "keys and members change", Operator, FaultSource::Later("memberships do not change yet");
    /// The replicas move to a new release one after the other, under load.
    RollingUpgrade = "rolling upgrade", Operator, FaultSource::Later("there is no earlier release");
}

impl Fault {
    /// Returns the faults of a class that standard runs draw.
    pub fn drawn(class: FaultClass) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |fault| {
            fault.class() == class && fault.source() == FaultSource::Drawn && *fault != Self::Coalition
        })
    }

    /// Whether a replica is started again after the fault.
    #[must_use]
    pub const fn is_crash(self) -> bool {
        matches!(self, Self::Kill | Self::PowerCut | Self::PowerCutInTurn | Self::PowerCutOfAll)
    }

    /// Whether the fault takes durable data from a replica. Such a replica may not recover, or may break promises,
    /// and counts among the f.
    #[must_use]
    pub const fn breaks_promises(self) -> bool {
        matches!(self, Self::MisdirectedWrite | Self::RotAtTail | Self::RotInLog | Self::RotInSnapshot)
    }
}

/// A set of faults.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FaultSet(u128);

impl FaultSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a fault.
    pub fn insert(&mut self, fault: Fault) {
        let place = Fault::ALL.iter().position(|known| *known == fault);
        let place = place.and_then(|place| u32::try_from(place).ok());
        self.0 |= place.and_then(|place| 1u128.checked_shl(place)).unwrap_or(0);
    }

    /// Returns the faults of the set.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        let is_there = move |place: usize| {
            u32::try_from(place).is_ok_and(|place| self.0.checked_shr(place).unwrap_or(0) & 1 == 1)
        };
        Fault::ALL.iter().enumerate().filter(move |(place, _)| is_there(*place)).map(|(_, fault)| *fault)
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|fault| fault.name() == text);
        found.ok_or_else(|| format!("no fault is named {text:?}; `quorate sim --faults` lists them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn fault_names_are_unique() {
        let names: BTreeSet<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse(), Ok(*fault));
            assert!(fault.about().ends_with('.') && !fault.about().starts_with(' '), "{fault}");
        }
        assert!("gremlins".parse::<Fault>().unwrap_err().contains("--faults"));
    }

    #[test]
    fn set_holds_every_fault() {
        let mut set = FaultSet::default();
        assert!(set.is_empty());
        for fault in Fault::ALL.iter().step_by(3) {
            set.insert(*fault);
        }
        assert!(set.iter().eq(Fault::ALL.iter().copied().step_by(3)));
        Fault::ALL.iter().for_each(|fault| set.insert(*fault));
        assert!(set.iter().eq(Fault::ALL.iter().copied()));
    }

    #[test]
    fn every_host_causes_some_fault() {
        let mut hosts = BTreeSet::new();
        for fault in Fault::ALL {
            if let FaultSource::Hosts(of) = fault.source() {
                hosts.extend(of.iter().copied());
            }
        }
        assert!(Byzantine::ALL.iter().all(|host| hosts.contains(host)), "{hosts:?}");
    }

    #[test]
    fn four_classes_are_drawn() {
        for class in [FaultClass::Network, FaultClass::Process, FaultClass::Disk, FaultClass::Client] {
            assert!(Fault::drawn(class).count() >= 7, "{}", class.name());
        }
        assert!(Fault::drawn(FaultClass::Process).any(Fault::is_crash));
    }
}
