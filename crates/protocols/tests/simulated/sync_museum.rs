//! The museum's rows for synchronous protocols: mutations that break safety, caught by their golden schedules.

use crate::chained_museum::Row;
use crate::opt_schedules::{
    cut_just_after_a_decision, decided_and_a_disk_that_stalls, decided_just_before_the_end,
    hidden_ancestor_of_five, two_blocks_and_two_votes, votes_just_after_the_end, votes_of_a_finished_view,
};
use crate::rotating::{GapCommits, OneDeltaTimer, gap_commits_forks, two_blocks_in_a_view};
use crate::sync_beyond::{decided_in_a_slowdown, slower_than_delta};
use crate::sync_cold::{early_riser, late_slowdown, repeated_votes};
use crate::sync_flaws::{
    AnyView, AskedOnce, Believed, CommitAfterQuit, FirstVoteTimer, HeldEvidence, HeldNotify, LateVote,
    LexicographicLock, LockRises, NeverStale, NoDelta, NoNotify, NoRecord, ShortTimer, StillArmed,
    ThreeQuarters, TickFirst, TimerAtHandler,
};
use crate::sync_hidden_certificates::{HiddenCertificates, NothingElse};
use crate::sync_schedules::{
    asked_before_it_has_voted, bases_of_two_heights, evidence_and_a_disk_that_stalls, force_locking, no_wait,
    proof_at_the_last_moment, vote_and_a_disk_that_stalls, vote_that_leaves_after_a_conflicting_message,
    voted_past_a_missed_header,
};
use crate::sync_short_waits::{NoWait, OneDelta};
use quorate_consensus::Entry;
use quorate_consensus::flawed::Flawed;
use quorate_protocols::sync_hotstuff::rotating::Rotating;
use quorate_protocols::sync_hotstuff::{Optimistic, Plain, SyncHotStuff, Variant};
use quorate_sim::Oracle;

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
    Entry::of::<Flawed<SyncHotStuff<V>, HiddenCertificates<F>>>()
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

const CAUGHT_BY: &[Oracle] = &[Oracle::Agreement];

pub(crate) const ROWS: &[Row] = &[
    Row::of_schedule(
        "M4",
        (
            "force-locking: a withheld certificate that is shown to one replica stops it from voting",
            "sync-hotstuff, script `lock-rises`: a lock rises in the middle of a view, and no replica votes for a block that conflicts with it",
        ),
        (SYNC, sync::<LockRises>()),
        CAUGHT_BY,
        |entry, _| force_locking(entry).err(),
    ),
    Row::of_schedule(
        "M4b",
        ("the same with a commit rule at network speed", "optsync, script `lock-rises`: the same"),
        (OPT, opt::<LockRises>()),
        CAUGHT_BY,
        |entry, _| force_locking(entry).err(),
    ),
    Row::of_schedule(
        "M30",
        (
            "messages take longer than delta",
            "sync-hotstuff without its guard: from a moment on all honest replicas are late; with the guard on the same forks nothing",
        ),
        (GUARDED, UNGUARDED),
        CAUGHT_BY,
        |entry, _| slower_than_delta(entry).err(),
    ),
    Row::of_schedule(
        "Y1",
        (
            "a replica enters the next view before the votes of the last one have arrived",
            "sync-hotstuff, script `no-wait`: at once after leaving a view",
        ),
        (SYNC, variant::<NoWait, NothingElse>()),
        CAUGHT_BY,
        |entry, _| no_wait(entry).err(),
    ),
    Row::of_schedule(
        "Y2",
        (
            "the proof that a view is over waits for the disk",
            "sync-hotstuff, script `evidence-held`: evidence is sent held, and disks stall",
        ),
        (SYNC, sync::<HeldEvidence>()),
        CAUGHT_BY,
        |entry, _| evidence_and_a_disk_that_stalls(entry).err(),
    ),
    Row::of_schedule(
        "Y3",
        (
            "the commit timer begins before the vote has left",
            "sync-hotstuff, script `timer-at-handler`: the 2 delta begin when the vote is decided, and the disk stalls",
        ),
        (SYNC, sync::<TimerAtHandler>()),
        CAUGHT_BY,
        |entry, _| vote_and_a_disk_that_stalls(entry).err(),
    ),
    Row::of_schedule(
        "Y4",
        (
            "a timer fires before messages that arrive at the same moment are handled",
            "sync-hotstuff, script `tick-first`: commit timers come first",
        ),
        (SYNC, sync::<TickFirst>()),
        CAUGHT_BY,
        |entry, _| proof_at_the_last_moment(entry).err(),
    ),
    Row::of_schedule(
        "Y5",
        (
            "a timer commits a block for which not all replicas vote",
            "sync-hotstuff, script `first-vote-timer`: the base of a view is committed 2 delta after the first vote",
        ),
        (SYNC, sync::<FirstVoteTimer>()),
        CAUGHT_BY,
        |entry, _| bases_of_two_heights(entry).err(),
    ),
    Row::of_schedule(
        "Y6",
        (
            "after a power cut a cluster continues without the replica that knows the acknowledged block",
            "sync-hotstuff, script `cold-early-riser`: a recovering replica waits for no peer",
        ),
        (SYNC, IMPATIENT),
        CAUGHT_BY,
        |entry, _| early_riser(entry).err(),
    ),
    Row::of_schedule(
        "Y7",
        (
            "no replica can prove the acknowledged block after a cold start",
            "sync-hotstuff, script `cold-no-record`: certificates are not recorded",
        ),
        (SYNC, sync::<NoRecord>()),
        CAUGHT_BY,
        |entry, _| repeated_votes(entry).err(),
    ),
    Row::of_schedule(
        "Y8",
        (
            "a slowdown just before a commit is not noticed",
            "sync-hotstuff, script `late-slowdown`, guard on: old answers to probes count as fresh",
        ),
        (SYNC, sync::<NeverStale>()),
        CAUGHT_BY,
        |entry, _| late_slowdown(entry).err(),
    ),
    Row::of_schedule(
        "Y9",
        (
            "the commit timer is too short",
            "sync-hotstuff, scenario 14, the schedule of `tick-first`: commit timers of 1.2 delta",
        ),
        (SYNC, sync::<ShortTimer>()),
        CAUGHT_BY,
        |entry, _| proof_at_the_last_moment(entry).err(),
    ),
    Row::of_schedule(
        "Y10",
        (
            "a peer that lacked a body is not asked again when it has the body",
            "sync-hotstuff, script `asked-once`: a replica shows a header before it has the body, is asked for the body once, and votes later",
        ),
        (SYNC, sync::<AskedOnce>()),
        CAUGHT_BY,
        |entry, _| asked_before_it_has_voted(entry).err(),
    ),
    Row::of_schedule(
        "Y11",
        (
            "a timer commits a block after a skipped view, and a replica with a higher lock does not vote for that block",
            "sync-hotstuff-rr, script `gap-commits`: the wait is 2 delta, also if the parent was not certified in the view before",
        ),
        (ROTATING, rotating::<GapCommits>()),
        CAUGHT_BY,
        |entry, _| gap_commits_forks(entry).err(),
    ),
    Row::of_schedule(
        "Y12",
        (
            "the commit timer is too short with rotating leaders",
            "sync-hotstuff-rr, section 15: commit timers of delta",
        ),
        (ROTATING, rotating::<OneDeltaTimer>()),
        CAUGHT_BY,
        |entry, _| two_blocks_in_a_view(entry).err(),
    ),
    Row::of_schedule(
        "Y13",
        (
            "a replica that has voted for the next block never votes for a block whose header arrives later",
            "sync-hotstuff, script `voted-past`: no certificate is sent to all; the leader shows one replica the second block before the first one arrives there",
        ),
        (SYNC, sync::<NothingElse>()),
        CAUGHT_BY,
        |entry, _| voted_past_a_missed_header(entry).err(),
    ),
    Row::of_schedule(
        "Y14",
        (
            "a vote leaves after a conflicting message has arrived",
            "sync-hotstuff, script `late-vote`: a vote that waits for a disk that stalls is not withdrawn",
        ),
        (SYNC, sync::<LateVote>()),
        CAUGHT_BY,
        |entry, _| vote_that_leaves_after_a_conflicting_message(entry).err(),
    ),
    Row::of_schedule(
        "Y15",
        (
            "a replica notices that the leader equivocates, and commits the block of its vote all the same",
            "sync-hotstuff, section 16, the schedule of `tick-first`: commit timers are not cancelled",
        ),
        (SYNC, sync::<StillArmed>()),
        CAUGHT_BY,
        |entry, _| proof_at_the_last_moment(entry).err(),
    ),
    Row::of_schedule(
        "Z1",
        (
            "no other replica receives a decision by many votes",
            "optsync, script `no-notify`: NOTIFY is not sent",
        ),
        (OPT, opt::<NoNotify>()),
        CAUGHT_BY,
        |entry, _| decided_just_before_the_end(entry).err(),
    ),
    Row::of_schedule(
        "Z2",
        (
            "a replica enters the next view before all have received the decision",
            "optsync, script `wait-one-delta`: delta after leaving a view, not 2 delta",
        ),
        (OPT, variant::<OneDelta, NothingElse>()),
        CAUGHT_BY,
        |entry, _| decided_just_before_the_end(entry).err(),
    ),
    Row::of_schedule(
        "Z3",
        (
            "a decision is sent only when it is durable",
            "optsync, script `notify-held`: NOTIFY is sent held, and the disk stalls",
        ),
        (OPT, opt::<HeldNotify>()),
        CAUGHT_BY,
        |entry, _| decided_and_a_disk_that_stalls(entry).err(),
    ),
    Row::of_schedule(
        "Z4",
        (
            "two quorums share no honest replica",
            "optsync, script `quorum-off-by-one`: 3n/4 votes decide, and not one more",
        ),
        (OPT, variant::<ThreeQuarters, Believed>()),
        CAUGHT_BY,
        |entry, _| two_blocks_and_two_votes(entry).err(),
    ),
    Row::of_schedule(
        "Z5",
        (
            "a hidden certificate of many votes for an ancestor outranks the block that a timer has committed above it",
            "optsync, script `lexicographic-lock`: locks are compared by their responsive heights first",
        ),
        (OPT, opt::<LexicographicLock>()),
        CAUGHT_BY,
        |entry, _| hidden_ancestor_of_five(entry).err(),
    ),
    Row::of_schedule(
        "Z6",
        (
            "many votes decide in a view that is over",
            "optsync, script `commit-after-quit`: also in a view that was left",
        ),
        (OPT, opt::<CommitAfterQuit>()),
        CAUGHT_BY,
        |entry, _| votes_just_after_the_end(entry).err(),
    ),
    Row::of_schedule(
        "Z8",
        ("the same as Y10 with a commit rule at network speed", "optsync, script `asked-once`: the same"),
        (OPT, opt::<AskedOnce>()),
        CAUGHT_BY,
        |entry, _| asked_before_it_has_voted(entry).err(),
    ),
    Row::of_schedule(
        "Z9",
        (
            "a replica enters the next view at once, before any other has received the decision",
            "optsync, section 12, the schedule of `no-notify`: no wait after leaving a view",
        ),
        (OPT, variant::<NoDelta, NothingElse>()),
        CAUGHT_BY,
        |entry, _| decided_just_before_the_end(entry).err(),
    ),
    Row::of_schedule(
        "Z10",
        (
            "a replica enters a view in a slowdown, without the decision of many votes",
            "optsync, section 16: no guard on entering; all messages are slow from just before a decision on",
        ),
        (OPT_GUARDED, OPT_UNGUARDED),
        CAUGHT_BY,
        |entry, _| decided_in_a_slowdown(entry).err(),
    ),
    Row::of_schedule(
        "Z11",
        (
            "many votes of a finished view decide a block that no replica has decided in it",
            "optsync, section 10: certificates of q_R votes count in any view; the liars show the votes that they withheld",
        ),
        (OPT, opt::<AnyView>()),
        CAUGHT_BY,
        |entry, _| votes_of_a_finished_view(entry).err(),
    ),
    Row::of_schedule(
        "Z7",
        (
            "no replica can prove a decision by many votes after a cold start",
            "optsync, script `cold-no-R`: certificates are not recorded",
        ),
        (OPT, opt::<NoRecord>()),
        CAUGHT_BY,
        |entry, _| cut_just_after_a_decision(entry).err(),
    ),
];

/// Rows whose variant does not contain [`HiddenCertificates`], and the last one, whose variant is nothing else.
const OTHERS: [&str; 6] = ["M30", "Y6", "Y11", "Y12", "Z10", "Y13"];

/// A row forks because the rule that it names is absent. The variant also shows its certificates to no replica, which makes
/// its schedule short. That alone forks nothing.
#[test]
fn hidden_certificates_alone_cause_no_fork() {
    let (plain, optimistic) = (variant::<Plain, NothingElse>(), variant::<Optimistic, NothingElse>());
    for row in ROWS.iter().filter(|row| !OTHERS.contains(&row.id)) {
        let alone = if row.sound.spec.name == OPT.spec.name { &optimistic } else { &plain };
        assert_eq!((row.run)(alone, 0), None, "{}: {}", row.id, row.variant);
    }
}
