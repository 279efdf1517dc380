//! The museum's rows for synchronous protocols: mutations that break safety, caught by their golden schedules.

use crate::chained_museum::Row;
use crate::opt_schedules::{
    cut_just_after_a_decision, decided_and_a_disk_that_stalls, decided_just_before_the_end,
    hidden_ancestor_of_five, two_blocks_and_two_votes, votes_just_after_the_end, votes_of_a_finished_view,
};
use crate::rotating::{GapCommits, OneDeltaTimer, gap_commits_forks, two_blocks_in_a_view};
use crate::sync_beyond::{decided_in_a_slowdown, slower_than_delta};
use crate::sync_cold::{early_riser, late_slowdown, votes_said_again};
use crate::sync_flaws::{
    AnyView, AskedOnce, Believed, CommitAfterQuit, FirstVoteTimer, HeldEvidence, HeldNotify, LateVote,
    LexicographicLock, LockRises, NeverStale, NoDelta, NoNotify, NoRecord, ShortTimer, StillArmed,
    ThreeQuarters, TickFirst, TimerAtHandler,
};
use crate::sync_schedules::{
    asked_before_it_has_voted, bases_of_two_heights, evidence_and_a_disk_that_stalls, force_locking, no_wait,
    proof_at_the_last_moment, vote_and_a_disk_that_stalls, vote_that_leaves_after_what_contradicts_it,
    voted_past_a_missed_header,
};
use crate::sync_unshown::{NothingElse, Unshown};
use crate::sync_waits::{NoWait, OneDelta};
use quorate_consensus::Entry;
use quorate_consensus::flawed::Flawed;
use quorate_protocols::sync_hotstuff::rotating::Rotating;
use quorate_protocols::sync_hotstuff::{Optimistic, Plain, SyncHotStuff, Variant};
use quorate_sim::{Failure, Oracle};

const SYNC: Entry = Entry::of::<SyncHotStuff<Plain>>();
const OPT: Entry = Entry::of::<SyncHotStuff<Optimistic>>();
const ROTATING: Entry = Entry::of::<SyncHotStuff<Rotating>>();

const fn rotating<F: quorate_consensus::flawed::Flaw<SyncHotStuff<Rotating>>>() -> Entry {
    Entry::of::<Flawed<SyncHotStuff<Rotating>, F>>()
}

/// Entry of a variant that shows no certificates.
const fn sync<F: quorate_consensus::flawed::Flaw<SyncHotStuff<Plain>>>() -> Entry {
    variant::<Plain, F>()
}

const fn opt<F: quorate_consensus::flawed::Flaw<SyncHotStuff<Optimistic>>>() -> Entry {
    variant::<Optimistic, F>()
}

const fn variant<V: Variant, F: quorate_consensus::flawed::Flaw<SyncHotStuff<V>>>() -> Entry {
    Entry::of::<Flawed<SyncHotStuff<V>, Unshown<F>>>()
}

/// The boot wait is one millisecond.
const IMPATIENT: Entry = Entry {
    exam_params: |delta_ns, guarded| {
        let mut params = (SYNC.exam_params)(delta_ns, guarded)?;
        params.extend([("boot_wait_ms".to_owned(), 1.into())]);
        Ok(params)
    },
    ..SYNC
};

/// Entry with the guard, whatever the world sets, and without it.
const GUARDED: Entry = Entry { exam_params: |delta_ns, _| (SYNC.exam_params)(delta_ns, true), ..SYNC };
const UNGUARDED: Entry = Entry { exam_params: |delta_ns, _| (SYNC.exam_params)(delta_ns, false), ..SYNC };
const OPT_GUARDED: Entry = Entry { exam_params: |delta_ns, _| (OPT.exam_params)(delta_ns, true), ..OPT };
const OPT_UNGUARDED: Entry = Entry { exam_params: |delta_ns, _| (OPT.exam_params)(delta_ns, false), ..OPT };

/// A schedule is one seed.
const fn row(
    id: &'static str,
    words: (&'static str, &'static str),
    (sound, broken): (Entry, Entry),
    run: fn(&Entry, u64) -> Option<Failure>,
) -> Row {
    let (failure, variant) = words;
    Row { id, failure, variant, caught_by: &[Oracle::Agreement], within: 1, broken, sound, run }
}

pub(crate) const ROWS: &[Row] = &[
    row(
        "M4",
        (
            "force-locking: a withheld certificate that is shown to one replica stops it from voting",
            "sync-hotstuff, script `lock-rises`: a lock rises in the middle of a view, and no replica votes for a block that conflicts with it",
        ),
        (SYNC, sync::<LockRises>()),
        |entry, _| force_locking(entry).err(),
    ),
    row(
        "M4b",
        ("the same with a commit rule at network speed", "optsync, script `lock-rises`: the same"),
        (OPT, opt::<LockRises>()),
        |entry, _| force_locking(entry).err(),
    ),
    row(
        "M30",
        (
            "messages take longer than delta",
            "sync-hotstuff without its guard: from a moment on all honest replicas are late; with the guard on the same forks nothing",
        ),
        (GUARDED, UNGUARDED),
        |entry, _| slower_than_delta(entry).err(),
    ),
    row(
        "Y1",
        (
            "the next view is entered before the votes of the last one are there",
            "sync-hotstuff, script `no-wait`: at once after leaving a view",
        ),
        (SYNC, variant::<NoWait, NothingElse>()),
        |entry, _| no_wait(entry).err(),
    ),
    row(
        "Y2",
        (
            "the proof that a view is over waits for the disk",
            "sync-hotstuff, script `evidence-held`: evidence is sent held, and disks stall",
        ),
        (SYNC, sync::<HeldEvidence>()),
        |entry, _| evidence_and_a_disk_that_stalls(entry).err(),
    ),
    row(
        "Y3",
        (
            "the silence of 2 delta begins before the others have received the vote",
            "sync-hotstuff, script `timer-at-handler`: the 2 delta begin when the vote is decided, and the disk stalls",
        ),
        (SYNC, sync::<TimerAtHandler>()),
        |entry, _| vote_and_a_disk_that_stalls(entry).err(),
    ),
    row(
        "Y4",
        (
            "a timer fires before messages that arrive at the same moment are handled",
            "sync-hotstuff, script `tick-first`: commit timers come first",
        ),
        (SYNC, sync::<TickFirst>()),
        |entry, _| proof_at_the_last_moment(entry).err(),
    ),
    row(
        "Y5",
        (
            "a timer commits a block for which not all replicas vote",
            "sync-hotstuff, script `first-vote-timer`: the base of a view is committed 2 delta after the first vote",
        ),
        (SYNC, sync::<FirstVoteTimer>()),
        |entry, _| bases_of_two_heights(entry).err(),
    ),
    row(
        "Y6",
        (
            "after a power cut of all, the cluster continues without the replica that knows acknowledged requests",
            "sync-hotstuff, script `cold-early-riser`: no replica waits for the others",
        ),
        (SYNC, IMPATIENT),
        |entry, _| early_riser(entry).err(),
    ),
    row(
        "Y7",
        (
            "after a cold start no replica can show acknowledged blocks",
            "sync-hotstuff, script `cold-no-record`: certificates are not recorded",
        ),
        (SYNC, sync::<NoRecord>()),
        |entry, _| votes_said_again(entry).err(),
    ),
    row(
        "Y8",
        (
            "a slowdown just before a commit is not noticed",
            "sync-hotstuff, script `late-slowdown`, guard on: answers to old probes count as fresh",
        ),
        (SYNC, sync::<NeverStale>()),
        |entry, _| late_slowdown(entry).err(),
    ),
    row(
        "Y9",
        (
            "the silence before a commit is too short",
            "sync-hotstuff, scenario 14, the schedule of `tick-first`: commit timers of 1.2 delta",
        ),
        (SYNC, sync::<ShortTimer>()),
        |entry, _| proof_at_the_last_moment(entry).err(),
    ),
    row(
        "Y10",
        (
            "a peer that lacked a body is not asked again when it has the body",
            "sync-hotstuff, script `asked-once`: a replica that shows a header without its body is asked for the body once only, and votes later",
        ),
        (SYNC, sync::<AskedOnce>()),
        |entry, _| asked_before_it_has_voted(entry).err(),
    ),
    row(
        "Y11",
        (
            "a timer commits, above a parent of an older view, a block for which replicas with a higher lock do not vote",
            "sync-hotstuff-rr, script `gap-commits`: the silence of 2 delta commits, whatever the view of the parent's certificate",
        ),
        (ROTATING, rotating::<GapCommits>()),
        |entry, _| gap_commits_forks(entry).err(),
    ),
    row(
        "Y12",
        (
            "the silence before a commit is too short where leaders follow each other",
            "sync-hotstuff-rr, section 15: commit timers of delta",
        ),
        (ROTATING, rotating::<OneDeltaTimer>()),
        |entry, _| two_blocks_in_a_view(entry).err(),
    ),
    row(
        "Y13",
        (
            "a replica that has voted for the next block never votes for a block whose header it receives later",
            "sync-hotstuff, script `voted-past`: no certificate is broadcast; the leader sends one replica the second block before the first",
        ),
        (SYNC, sync::<NothingElse>()),
        |entry, _| voted_past_a_missed_header(entry).err(),
    ),
    row(
        "Y14",
        (
            "a vote leaves after a conflicting message has arrived",
            "sync-hotstuff, script `late-vote`: a vote that waits for a disk that stalls is not withdrawn",
        ),
        (SYNC, sync::<LateVote>()),
        |entry, _| vote_that_leaves_after_what_contradicts_it(entry).err(),
    ),
    row(
        "Y15",
        (
            "the leader's equivocation is noticed, and the block of the vote is committed all the same",
            "sync-hotstuff, section 16, the schedule of `tick-first`: commit timers are not cancelled",
        ),
        (SYNC, sync::<StillArmed>()),
        |entry, _| proof_at_the_last_moment(entry).err(),
    ),
    row(
        "Z1",
        (
            "no other replica learns of a decision by many votes",
            "optsync, script `no-notify`: NOTIFY is not sent",
        ),
        (OPT, opt::<NoNotify>()),
        |entry, _| decided_just_before_the_end(entry).err(),
    ),
    row(
        "Z2",
        (
            "the next view is entered before all replicas have learnt of the decision",
            "optsync, script `wait-one-delta`: delta after leaving a view, not 2 delta",
        ),
        (OPT, variant::<OneDelta, NothingElse>()),
        |entry, _| decided_just_before_the_end(entry).err(),
    ),
    row(
        "Z3",
        (
            "a decision is reported only once the disk has it",
            "optsync, script `notify-held`: NOTIFY is sent held, and the disk stalls",
        ),
        (OPT, opt::<HeldNotify>()),
        |entry, _| decided_and_a_disk_that_stalls(entry).err(),
    ),
    row(
        "Z4",
        (
            "two quorums share no honest replica",
            "optsync, script `quorum-off-by-one`: 3n/4 votes decide, and not one more",
        ),
        (OPT, variant::<ThreeQuarters, Believed>()),
        |entry, _| two_blocks_and_two_votes(entry).err(),
    ),
    row(
        "Z5",
        (
            "a hidden certificate of many votes for an ancestor outranks a block above it that a timer has committed",
            "optsync, script `lexicographic-lock`: locks are compared by their responsive heights first",
        ),
        (OPT, opt::<LexicographicLock>()),
        |entry, _| hidden_ancestor_of_five(entry).err(),
    ),
    row(
        "Z6",
        (
            "many votes decide in a view that is over",
            "optsync, script `commit-after-quit`: also after the view was left",
        ),
        (OPT, opt::<CommitAfterQuit>()),
        |entry, _| votes_just_after_the_end(entry).err(),
    ),
    row(
        "Z8",
        ("the same as Y10 with a commit rule at network speed", "optsync, script `asked-once`: the same"),
        (OPT, opt::<AskedOnce>()),
        |entry, _| asked_before_it_has_voted(entry).err(),
    ),
    row(
        "Z9",
        (
            "the next view is entered at once, before any replica has learnt of the decision",
            "optsync, section 12, the schedule of `no-notify`: no wait after leaving a view",
        ),
        (OPT, variant::<NoDelta, NothingElse>()),
        |entry, _| decided_just_before_the_end(entry).err(),
    ),
    row(
        "Z10",
        (
            "a view is entered in a slowdown, without the decision by many votes",
            "optsync, section 16: no guard on entering; everything is slow from just before a decision on",
        ),
        (OPT_GUARDED, OPT_UNGUARDED),
        |entry, _| decided_in_a_slowdown(entry).err(),
    ),
    row(
        "Z11",
        (
            "many votes of a view that is over decide a block that no replica has decided in it",
            "optsync, section 10: certificates of q_R votes count in any view; the liars show the certificates that they withheld",
        ),
        (OPT, opt::<AnyView>()),
        |entry, _| votes_of_a_finished_view(entry).err(),
    ),
    row(
        "Z7",
        (
            "after a cold start no replica can show a decision by many votes",
            "optsync, script `cold-no-R`: certificates are not recorded",
        ),
        (OPT, opt::<NoRecord>()),
        |entry, _| cut_just_after_a_decision(entry).err(),
    ),
];

/// What is broken in these does not begin with [`Unshown`], or, in the last one, is nothing else.
const OTHERS: [&str; 6] = ["M30", "Y6", "Y11", "Y12", "Z10", "Y13"];

/// It is the rule that a row names whose absence forks: that certificates are shown to nobody, which makes its schedule
/// short, forks nothing there.
#[test]
fn unshown_certificates_alone_fork_nothing() {
    let (plain, optimistic) = (variant::<Plain, NothingElse>(), variant::<Optimistic, NothingElse>());
    for row in ROWS.iter().filter(|row| !OTHERS.contains(&row.id)) {
        let alone = if row.sound.spec.name == OPT.spec.name { &optimistic } else { &plain };
        assert_eq!((row.run)(alone, 0), None, "{}: {}", row.id, row.variant);
    }
}
