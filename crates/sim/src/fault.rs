//! The faults of the world, by name: documentation, command line and random runs draw from this one list.
//!
//! A fault stands here although it cannot happen inside of one process: then it says which test with real processes
//! covers it, or that none can yet. What a fault *is* stands beside what makes it happen: [`crate::NetworkFault`] for the
//! network, [`crate::Plan`] for machines, [`crate::Byzantine`] for replicas that lie.

use crate::byzantine_kind::Byzantine;
use std::fmt;
use std::str::FromStr;

/// Where a fault belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultClass {
    /// Between machines.
    Network,
    /// A process or its machine.
    Process,
    /// What a disk does to what was entrusted to it.
    Disk,
    /// A replica that lies.
    Byzantine,
    /// A client that lies, or vanishes.
    Client,
    /// What protocols assume does not hold.
    Model,
    /// People.
    Operator,
}

impl FaultClass {
    /// All of them, in the order of the list.
    pub const ALL: [Self; 7] = [
        Self::Network,
        Self::Process,
        Self::Disk,
        Self::Byzantine,
        Self::Client,
        Self::Model,
        Self::Operator,
    ];

    /// As documentation calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Process => "process",
            Self::Disk => "disk",
            Self::Byzantine => "Byzantine replica",
            Self::Client => "client",
            Self::Model => "model",
            Self::Operator => "operator",
        }
    }
}

/// What brings a fault about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultSource {
    /// Standard runs draw it.
    Drawn,
    /// Byzantine hosts that standard runs draw.
    Hosts(&'static [Byzantine]),
    /// Something that is asked for.
    Asked(&'static str),
    /// Tests with real processes: `file::test`, below `crates/node/tests`.
    Processes(&'static [&'static str]),
    /// Nothing yet, and why.
    Later(&'static str),
}

macro_rules! faults {
    ($($(#[doc = $about:literal])+ $variant:ident = $name:literal, $class:ident, $source:expr;)+) => {
        /// See the module.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Fault {
            $($(#[doc = $about])+ $variant,)+
        }

        impl Fault {
            /// All of them, class by class.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As command line and printed facts call it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Where it belongs.
            #[must_use]
            pub const fn class(self) -> FaultClass {
                match self { $(Self::$variant => FaultClass::$class,)+ }
            }

            /// What it is, in a sentence.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => concat!($($about),+).trim_ascii(),)+ }
            }

            /// What brings it about.
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
    /// Delays become so different that messages overtake each other.
    Reordering = "reordering", Network, FaultSource::Drawn;
    /// Some messages arrive twice.
    Duplication = "duplication", Network, FaultSource::Drawn;
    /// Packets of long ago arrive again.
    OldPackets = "old packets", Network, FaultSource::Drawn;
    /// Messages pass in one direction only.
    OneWay = "one way", Network, FaultSource::Drawn;
    /// The replicas are cut in two.
    Partition = "partition", Network, FaultSource::Drawn;
    /// One replica is cut off from all others.
    Isolation = "isolation", Network, FaultSource::Drawn;
    /// Whoever leads is cut off, one leader after the other.
    LeaderCut = "leader cut off", Network, FaultSource::Drawn;
    /// A link fills up and delivers everything later.
    Clog = "clog", Network, FaultSource::Drawn;
    /// The link between two replicas is slow.
    SlowLink = "slow link", Network, FaultSource::Drawn;
    /// Connections break again and again.
    Churn = "churn", Network, FaultSource::Drawn;
    /// A connection is gone and one end does not hear of it for seconds.
    HalfOpen = "half-open", Network, FaultSource::Drawn;
    /// What arrives is not what was sent; links notice.
    CorruptFrame = "corrupt frame", Network, FaultSource::Drawn;
    /// Streams come a few bytes at a time.
    SlowLoris = "slow loris", Network, FaultSource::Drawn;
    /// A frame says that it is longer than any may be.
    OversizeFrame = "oversize frame", Network, FaultSource::Hosts(&[B::Flood]);
    /// More frames than anybody can use.
    Flood = "flood", Network, FaultSource::Hosts(&[B::Flood]);

    /// The process is killed and started again; what it had written waits in the cache of its machine.
    Kill = "kill", Process, FaultSource::Drawn;
    /// The process stands still for longer than any timeout, and goes on.
    Pause = "pause", Process, FaultSource::Drawn;
    /// The process is killed again and again, soon after each start.
    RestartLoop = "restart loop", Process, FaultSource::Drawn;
    /// The clock on the wall is seconds off after a restart, in either direction.
    ClockJump = "clock jump", Process, FaultSource::Drawn;
    /// A replica's time passes faster or slower than that of others.
    ClockDrift = "clock drift", Process, FaultSource::Drawn;
    /// A machine loses power and comes back.
    PowerCut = "power cut", Process, FaultSource::Drawn;
    /// A machine loses power between two steps of a turn.
    PowerCutInTurn = "power cut in turn", Process, FaultSource::Drawn;
    /// All machines lose power at once.
    PowerCutOfAll = "power cut of all", Process, FaultSource::Drawn;
    /// Executing takes five hundred times as long.
    SlowExecutor = "slow executor", Process, FaultSource::Drawn;
    /// The system kills a process that has taken too much memory: a kill, and limits that keep it from coming to that.
    OutOfMemory = "out of memory", Process, FaultSource::Processes(&["hostile/floods.rs::thousands_of_connections_and_frames_leave_nothing_behind", "kill.rs::a_backup_dies_under_load_and_comes_back"]);
    /// A node is started with the binary of an earlier release.
    OldBinary = "old binary", Process, FaultSource::Later("there is no earlier release");
    /// A node is started with a configuration that is wrong.
    WrongConfig = "wrong configuration", Process, FaultSource::Processes(&["configuration.rs::values_have_ranges", "folders.rs::the_keys_must_be_the_listed_ones"]);

    /// A power cut leaves some sectors of what was written, and not others.
    TornWrite = "torn write", Disk, FaultSource::Drawn;
    /// A power cut leaves nothing of what was not synced.
    LostWrite = "lost write", Disk, FaultSource::Drawn;
    /// A write goes to another place than it was meant for.
    MisdirectedWrite = "misdirected write", Disk, FaultSource::Drawn;
    /// A bit changes in what was written last.
    RotAtTail = "rot at the tail", Disk, FaultSource::Drawn;
    /// A bit changes in the middle of the log.
    RotInLog = "rot in the log", Disk, FaultSource::Drawn;
    /// A bit changes in a snapshot.
    RotInSnapshot = "rot in a snapshot", Disk, FaultSource::Drawn;
    /// Reading fails.
    ReadError = "read error", Disk, FaultSource::Drawn;
    /// A sync fails; what was written since the last one may be lost.
    SyncError = "sync error", Disk, FaultSource::Drawn;
    /// No space is left, until somebody makes some.
    FullDisk = "full disk", Disk, FaultSource::Drawn;
    /// Writes and syncs take a hundred times as long.
    SlowDisk = "slow disk", Disk, FaultSource::Drawn;
    /// A replica comes back with an empty disk.
    Wiped = "wiped disk", Disk, FaultSource::Hosts(&[B::Rollback]);
    /// A replica comes back with its disk of some time ago.
    RolledBack = "rolled back disk", Disk, FaultSource::Hosts(&[B::Rollback]);

    /// A replica says nothing.
    Silence = "silence", Byzantine, FaultSource::Hosts(&[B::Mute]);
    /// A replica says nothing to some, or nothing of some kind.
    SelectiveSilence = "selective silence", Byzantine, FaultSource::Hosts(&[B::Mute, B::Favourites]);
    /// A leader proposes different things to different replicas.
    EquivocateProposal = "equivocate proposal", Byzantine, FaultSource::Hosts(&[B::Twin, B::Own]);
    /// What only somebody who knows the protocol would think of, equivocation about proposals among it.
    OwnAttack = "own attack", Byzantine, FaultSource::Hosts(&[B::Own]);
    /// A replica votes for different things.
    EquivocateVote = "equivocate vote", Byzantine, FaultSource::Hosts(&[B::Twin, B::Rollback, B::Own]);
    /// Two histories are built beside each other.
    Fork = "fork", Byzantine, FaultSource::Hosts(&[B::Twin]);
    /// Certificates of long ago are shown as if they were new.
    StaleCertificate = "stale certificate", Byzantine, FaultSource::Hosts(&[B::Mutate, B::Replay]);
    /// A statement names another view than its sender is in.
    WrongView = "wrong view", Byzantine, FaultSource::Hosts(&[B::Mutate]);
    /// A replica says again what it said long ago.
    Replay = "replay", Byzantine, FaultSource::Hosts(&[B::Replay]);
    /// A signature is not what it should be.
    InvalidSignature = "invalid signature", Byzantine, FaultSource::Hosts(&[B::Mutate]);
    /// Well signed, and wrong.
    BadContent = "bad content, well signed", Byzantine, FaultSource::Hosts(&[B::Mutate, B::Own]);
    /// What those who lag are told is wrong.
    LieInCatchUp = "lie in catch-up", Byzantine, FaultSource::Hosts(&[B::CatchUp]);
    /// What clients are told is wrong.
    LieToClients = "lie to clients", Byzantine, FaultSource::Hosts(&[B::Clients]);
    /// Everything comes just before others lose patience.
    JustInTime = "just under the timeout", Byzantine, FaultSource::Hosts(&[B::Delay]);
    /// Two replicas with one key and one id.
    DoubleIdentity = "double identity", Byzantine, FaultSource::Hosts(&[B::Twin]);
    /// All f of them do the same at the same time.
    Coalition = "coalition of f", Byzantine, FaultSource::Drawn;
    /// Whoever leads is corrupted, up to f replicas in all.
    Adaptive = "adaptive", Byzantine, FaultSource::Hosts(&[B::Adaptive]);

    /// Two bundles with one number, of the same client, one after the other.
    DuplicateId = "duplicate id", Client, FaultSource::Drawn;
    /// Somebody sends again what a client had sent.
    ReplayedRequest = "replayed request", Client, FaultSource::Drawn;
    /// A bundle that is larger than any may be.
    OversizeRequest = "oversize request", Client, FaultSource::Drawn;
    /// Bytes that are no message.
    MalformedRequest = "malformed request", Client, FaultSource::Drawn;
    /// Different bundles with one number to different replicas.
    EquivocatingClient = "equivocating client", Client, FaultSource::Drawn;
    /// More bundles than a client may have under way.
    ClientFlood = "client flood", Client, FaultSource::Drawn;
    /// A client's connections break in the middle of a request.
    Disconnect = "disconnect", Client, FaultSource::Drawn;
    /// No answer reaches any client: all of them ask again, and again, everybody.
    RetryStorm = "retry storm", Client, FaultSource::Drawn;

    /// Messages take longer than a synchronous protocol was promised.
    BeyondDelta = "beyond delta", Model, FaultSource::Asked("--scenario \"beyond delta\"");
    /// More replicas lie than the protocol tolerates: nothing is promised but that it is noticed, and who it was named.
    TooManyLiars = "more than f", Model, FaultSource::Asked("--byzantine HOST:NUMBER");

    /// A replica has another genesis.
    WrongGenesis = "wrong genesis", Operator, FaultSource::Processes(&["hostile/peers.rs::strangers_on_the_port_of_peers_get_nowhere", "hostile/clients.rs::strangers_on_the_port_of_clients_get_nowhere"]);
    /// One key runs on two machines.
    SharedKey = "one key on two machines", Operator, FaultSource::Processes(&["operators.rs::one_key_runs_on_two_machines"]);
    /// A backup of long ago is put in the place of a disk.
    OldBackup = "restored from an old backup", Operator, FaultSource::Processes(&["operators.rs::a_backup_of_long_ago_is_put_in_the_place_of_a_disk"]);
    /// A certificate has expired.
    ExpiredCertificate = "expired certificate", Operator, FaultSource::Later("links have no certificates");
    /// Keys and members change under load.
    Reconfiguration = "keys and members change", Operator, FaultSource::Later("memberships do not change yet");
    /// One release after the other, under load.
    RollingUpgrade = "rolling upgrade", Operator, FaultSource::Later("there is no earlier release");
}

impl Fault {
    /// Those that standard runs draw from, of a class.
    pub fn drawn(class: FaultClass) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |fault| {
            fault.class() == class && fault.source() == FaultSource::Drawn && *fault != Self::Coalition
        })
    }

    /// Those after which a replica starts again.
    #[must_use]
    pub const fn is_crash(self) -> bool {
        matches!(self, Self::Kill | Self::PowerCut | Self::PowerCutInTurn | Self::PowerCutOfAll)
    }

    /// Those that take from a replica what it has been told is safe: it may not come back, or not as itself, and counts
    /// among the f.
    #[must_use]
    pub const fn breaks_promises(self) -> bool {
        matches!(self, Self::MisdirectedWrite | Self::RotAtTail | Self::RotInLog | Self::RotInSnapshot)
    }
}

/// Some faults.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FaultSet(u128);

impl FaultSet {
    /// None.
    pub const NONE: Self = Self(0);

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds one.
    pub fn insert(&mut self, fault: Fault) {
        let place = Fault::ALL.iter().position(|known| *known == fault);
        let place = place.and_then(|place| u32::try_from(place).ok());
        self.0 |= place.and_then(|place| 1u128.checked_shl(place)).unwrap_or(0);
    }

    /// Those that are in it.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        let is_there = move |place: usize| {
            u32::try_from(place).is_ok_and(|place| self.0.checked_shr(place).unwrap_or(0) & 1 == 1)
        };
        Fault::ALL.iter().enumerate().filter(move |(place, _)| is_there(*place)).map(|(_, fault)| *fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
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
    fn every_fault_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse(), Ok(*fault));
            assert!(fault.about().ends_with('.') && !fault.about().starts_with(' '), "{fault}");
        }
        assert!("gremlins".parse::<Fault>().unwrap_err().contains("--faults"));
    }

    #[test]
    fn a_set_has_room_for_all_of_them() {
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
    fn every_host_is_some_fault() {
        let mut hosts = BTreeSet::new();
        for fault in Fault::ALL {
            if let FaultSource::Hosts(of) = fault.source() {
                hosts.extend(of.iter().copied());
            }
        }
        assert!(Byzantine::ALL.iter().all(|host| hosts.contains(host)), "{hosts:?}");
    }

    #[test]
    fn four_classes_are_drawn_from() {
        for class in [FaultClass::Network, FaultClass::Process, FaultClass::Disk, FaultClass::Client] {
            assert!(Fault::drawn(class).count() >= 7, "{}", class.name());
        }
        assert!(Fault::drawn(FaultClass::Process).any(Fault::is_crash));
    }
}
