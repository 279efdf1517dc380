//! Rows of the museum about persistence, and about replicas that come back or catch up.

use crate::chained_museum::{Row, slow};
use crate::lesson_flaws::{
    AssertsUnique, ConvictsOfTimeouts, LastOfEachKind, OwnTimeoutUncounted, TimeoutPruned,
};
use crate::lessons::{nobody, timeouts_before_a_power_cut, twin};
use crate::return_flaws::{BelievesEntries, FIRST_TIMER_MS, NothingForgotten, ResetBySameView};
use quorate_consensus::flawed::{Flaw, Flawed};
use quorate_consensus::{Entry, Examined};
use quorate_protocols::chained::{Chained, HotStuff, Jolteon};
use quorate_protocols::pbft::{Linked, Pbft};
use quorate_protocols::sync_hotstuff::{Plain, SyncHotStuff};
use quorate_sim::seed::{ByzantineChoice, StandardRun};
use quorate_sim::{Byzantine, Failure, Oracle};

const fn broken<P: Examined, F: Flaw<P>>() -> Entry {
    Entry { attacks: P::ATTACKS, ..Entry::of::<Flawed<P, F>>() }
}

const PBFT: Entry = Entry::of::<Pbft<Linked>>();
const HOTSTUFF: Entry = Entry::of::<Chained<HotStuff>>();
const JOLTEON: Entry = Entry::of::<Chained<Jolteon>>();
const SYNC: Entry = Entry::of::<SyncHotStuff<Plain>>();

/// HotStuff with a first timer that is too short for its network.
const fn hasty(entry: Entry) -> Entry {
    Entry {
        exam_params: |delta_ns, guarded| {
            let mut params = (HOTSTUFF.exam_params)(delta_ns, guarded)?;
            params.extend([("d0_ms".to_owned(), i64::try_from(FIRST_TIMER_MS).unwrap_or_default().into())]);
            Ok(params)
        },
        choices: &[],
        ..entry
    }
}

fn wiped(entry: &Entry, seed: u64) -> Option<Failure> {
    StandardRun::with(entry, Some(entry.smallest(2)), ByzantineChoice::Wiped, seed).unwrap().run().failure
}

fn liars(entry: &Entry, seed: u64) -> Option<Failure> {
    StandardRun::with(entry, None, ByzantineChoice::All(Byzantine::Own), seed).unwrap().run().failure
}

const BELIEVES_ENTRIES: Entry = Entry::of::<Flawed<Pbft<Linked>, BelievesEntries>>();

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "M12",
        failure: "a message about the present height resets a counter, and a replica recovers again and again",
        variant: "hotstuff: a proof of the present view makes timers short again; the first timer lasts 10 ms, and messages take 40 ms",
        caught_by: &[Oracle::Liveness, Oracle::Livelock, Oracle::Pacemaker],
        from: 0,
        within: 5,
        broken: hasty(broken::<Chained<HotStuff>, ResetBySameView>()),
        sound: hasty(HOTSTUFF),
        run: slow,
    },
    Row {
        id: "M14",
        failure: "a replica that is behind takes the leader from one reply",
        variant: "pbft: the proof of a view in an ENTRY is not verified; a Byzantine replica sends invented ones to some",
        caught_by: &[Oracle::Agreement, Oracle::Stopped],
        from: 0,
        within: 20,
        broken: BELIEVES_ENTRIES,
        sound: Entry { attacks: BELIEVES_ENTRIES.attacks, ..PBFT },
        run: liars,
    },
    Row {
        id: "M19",
        failure: "a replica equivocates after the loss of its disk",
        variant: "sync-hotstuff, five replicas: one that has lost its disk abstains from no statement",
        caught_by: &[Oracle::SameSlot],
        from: 6,
        within: 20,
        broken: broken::<SyncHotStuff<Plain>, NothingForgotten>(),
        sound: SYNC,
        run: wiped,
    },
    Row {
        id: "P1",
        failure: "the own timeout is on disk and is not counted again: after a restart of all one is missing for ever",
        variant: "hotstuff: the own copy of the first timeout after a restart is not counted; all lose power when they have timed out",
        caught_by: &[Oracle::Liveness],
        from: 0,
        within: 1,
        broken: broken::<Chained<HotStuff>, OwnTimeoutUncounted>(),
        sound: HOTSTUFF,
        run: timeouts_before_a_power_cut,
    },
    Row {
        id: "P1b",
        failure: "the same with a blame",
        variant: "sync-hotstuff: the same",
        caught_by: &[Oracle::Liveness],
        from: 0,
        within: 1,
        broken: broken::<SyncHotStuff<Plain>, OwnTimeoutUncounted>(),
        sound: SYNC,
        run: timeouts_before_a_power_cut,
    },
    Row {
        id: "P2",
        failure: "a restart continues at the last record of a kind, and not at the highest",
        variant: "pbft: each record replaces the one before it of the same kind, whatever their heights",
        caught_by: &[Oracle::Stopped, Oracle::Agreement],
        from: 0,
        within: 20,
        broken: broken::<Pbft<Linked>, LastOfEachKind>(),
        sound: PBFT,
        run: nobody,
    },
    Row {
        id: "P3",
        failure: "pruning erases a timeout, and its replica votes in the view that it has left",
        variant: "pbft: a stable checkpoint erases the records of the view and of the own VIEW-CHANGE",
        caught_by: &[Oracle::SameSlot, Oracle::Agreement, Oracle::Stopped],
        from: 0,
        within: 20,
        broken: broken::<Pbft<Linked>, TimeoutPruned>(),
        sound: PBFT,
        run: nobody,
    },
    Row {
        id: "P5",
        failure: "a timeout that is signed again convicts an honest replica",
        variant: "jolteon: two timeouts of one view that list different certificates count as equivocation",
        caught_by: &[Oracle::Accusation],
        from: 0,
        within: 20,
        broken: broken::<Chained<Jolteon>, ConvictsOfTimeouts>(),
        sound: JOLTEON,
        run: nobody,
    },
    Row {
        id: "P6",
        failure: "one liar trips an assertion of uniqueness",
        variant: "hotstuff: an assertion that no replica fills one slot twice; one replica is two",
        caught_by: &[Oracle::Panic],
        from: 0,
        within: 5,
        broken: broken::<Chained<HotStuff>, AssertsUnique>(),
        sound: HOTSTUFF,
        run: twin,
    },
];

/// Published failures without a variant, and the reason.
pub(crate) const NO_VARIANTS: &[(&str, &str)] = &[
    (
        "M20",
        "a transfer has a lane of its own, and the bytes that it has asked for are bounded; no protocol can change that (`transfers::transfer_delays_no_client`)",
    ),
    (
        "M22",
        "a replica that is behind waits for no single peer (`transfers::liar_about_its_heights_keeps_nobody_out`)",
    ),
    (
        "M23",
        "the digest of each part follows from the signed state and its index (`transfers::chunk_of_another_index_is_noticed`)",
    ),
    (
        "P4",
        "replicas with different highest certificates, so that no proposal gets a quorum: M6 and M6b; a test cuts the power of each replica at another moment (`lessons::differing_certificates_stop_no_cluster`)",
    ),
    (
        "P7",
        "a write that returns before the disk has it: M15, under every protocol (`lessons::write_that_*`)",
    ),
];
