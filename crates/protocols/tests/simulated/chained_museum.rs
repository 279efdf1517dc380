//! Rows of the museum about chained protocols.

use crate::chained_flaws::{
    CountsNobody, Credulous, DeafToTimers, FiresAgain, Forgets, HiddenLock, In, LeavesUnproven,
    LowestCertificate, NoCertificates, NoLastVote, SaidOnce, UnprovenProposals, ViewsLeftOut,
    ViewsLeftOutUnseen, VotesForAll, VotesForNoBlock, VotesOfTwoViews,
};
use crate::chained_hotstuff2::NoLock;
use crate::chained_support::{Chained, HotStuff, HotStuff2, Jolteon, PROPOSE, Rules};
use quorate_consensus::Entry;
use quorate_consensus::flawed::Flawed;
use quorate_sim::exam::{ExamScenario, ShortRun};
use quorate_sim::seed::{ByzantineChoice, StandardRun};
use quorate_sim::twins::{Enumeration, Leaders, Sample, ScenarioRun};
use quorate_sim::{Byzantine, Failure, Frame, LinkConditions, Oracle, Trace, Verdict, ms, secs};
use quorate_types::wire::frame::PROTOCOL;
use quorate_types::{ReplicaId, View};
use std::cell::Cell;
use std::rc::Rc;

/// A flaw of a protocol, and the oracles that have to catch it.
pub(crate) struct Row {
    pub(crate) id: &'static str,
    /// The failure as it was published.
    pub(crate) failure: &'static str,
    /// The broken variant.
    pub(crate) variant: &'static str,
    /// The oracles, each of which may catch it.
    pub(crate) caught_by: &'static [Oracle],
    /// The first seed. It is above 0 if the first failure comes so late that a search from 0 on would take long.
    pub(crate) from: u64,
    /// The number of seeds within which it must be caught.
    pub(crate) within: u64,
    pub(crate) broken: Entry,
    /// The protocol without the flaw.
    pub(crate) sound: Entry,
    pub(crate) run: fn(&Entry, u64) -> Option<Failure>,
}

impl Row {
    /// Returns the row of a schedule, which is one seed.
    pub(crate) const fn of_schedule(
        id: &'static str,
        (failure, variant): (&'static str, &'static str),
        (sound, broken): (Entry, Entry),
        caught_by: &'static [Oracle],
        run: fn(&Entry, u64) -> Option<Failure>,
    ) -> Self {
        Self { id, failure, variant, caught_by, from: 0, within: 1, broken, sound, run }
    }

    /// Returns the number of the seed that shows the flaw, counted from 1, and the failure. The protocol without the flaw
    /// passes that seed, and the seeds before it from the first one on.
    pub(crate) fn catch(&self) -> Option<(u64, Failure)> {
        let found = (self.from..self.from + self.within).find_map(|seed| {
            let failure = (self.run)(&self.broken, seed)?;
            self.caught_by.contains(&failure.oracle).then_some((seed + 1, failure))
        });
        for seed in self.from..found.as_ref().map_or(0, |(seeds, _)| *seeds) {
            let failure = (self.run)(&self.sound, seed);
            assert_eq!(
                failure, None,
                "{}: {} with nothing wrong, seed {seed}",
                self.id, self.sound.spec.name
            );
        }
        found
    }
}

const fn broken<R: Rules, X: crate::chained_flaws::Wrong<R>>() -> Entry {
    Entry::of::<Flawed<Chained<R>, In<R, X>>>()
}

const HOTSTUFF: Entry = Entry::of::<Chained<HotStuff>>();
const JOLTEON: Entry = Entry::of::<Chained<Jolteon>>();
const HOTSTUFF2: Entry = Entry::of::<Chained<HotStuff2>>();

/// The protocol with the default leader policy of the exam, round-robin: some flaws know no other policy.
const fn in_turns(entry: Entry) -> Entry {
    Entry { choices: &[], ..entry }
}

fn standard(entry: &Entry, hosts: ByzantineChoice, seed: u64) -> Option<Failure> {
    StandardRun::with(entry, None, hosts, seed).unwrap().run().failure
}

fn exam(name: &str, n: usize, entry: &Entry, seed: u64) -> Option<Failure> {
    ExamScenario::find(name).unwrap().run(entry, n, seed).unwrap().failure
}

fn nobody(entry: &Entry, seed: u64) -> Option<Failure> {
    standard(entry, ByzantineChoice::Nobody, seed)
}

fn liars(entry: &Entry, seed: u64) -> Option<Failure> {
    standard(entry, ByzantineChoice::All(Byzantine::Own), seed)
}

/// A short run in which the messages of one replica reach few others.
fn with_one_that_reaches_few(entry: &Entry, seed: u64) -> ShortRun {
    ShortRun::new((entry, 4, seed), Trace::default(), |settings, _| {
        settings.byzantine.replicas.insert(REACHES_FEW, Byzantine::Clients);
    })
    .unwrap()
}

/// The replica whose messages reach few others, and the replica that receives them. The second one leads before the first.
const REACHES_FEW: ReplicaId = ReplicaId(1);
const RECEIVES: ReplicaId = ReplicaId(0);

fn is_of_protocol(frame: &Frame) -> bool {
    frame.frame_type == PROTOCOL
}

/// A leader proposes to one replica, and sends no other message.
fn proposes_to_one(entry: &Entry, seed: u64) -> Option<Failure> {
    let mut short = with_one_that_reaches_few(entry, seed);
    short.world().hook(|_, frame| {
        let is_received = frame.to == RECEIVES && frame.content.kind == PROPOSE;
        let is_lost = frame.from == REACHES_FEW && is_of_protocol(frame) && !is_received;
        if is_lost { Verdict::Drop } else { Verdict::Pass }
    });
    short.run(|world, _| world.run_for(secs(8))).failure
}

/// A leader proposes to one replica, and the proposal arrives after all others have entered its view without it: one replica
/// alone knows the certificate in it.
fn proposes_to_one_in_time(entry: &Entry, seed: u64) -> Option<Failure> {
    let mut short = with_one_that_reaches_few(entry, seed);
    let held: Rc<Cell<Option<View>>> = Rc::default();
    let due: Rc<Cell<bool>> = Rc::default();
    let (holds, falls_due) = (Rc::clone(&held), Rc::clone(&due));
    short.world().hook(move |_, frame| {
        let (kind, view) = (frame.content.kind, frame.content.view);
        if frame.from == RECEIVES && kind == Jolteon::TIMEOUT && holds.get() == Some(view.next()) {
            falls_due.set(true);
        }
        match (frame.from == REACHES_FEW && is_of_protocol(frame), kind == PROPOSE && frame.to == RECEIVES) {
            (false, _) => Verdict::Pass,
            (true, false) => Verdict::Drop,
            (true, true) => {
                holds.set(Some(view));
                Verdict::Hold
            }
        }
    });
    let run = short.run(|world, _| {
        for _ in 0..2_000 {
            world.run_for(ms(10))?;
            if due.take() {
                // By then all have entered the view.
                world.run_for(ms(20))?;
                world.release();
            }
        }
        world.run_while("all operations are answered", 1, |world| !world.all_done())
    });
    run.failure
}

/// All messages take the longest promised time.
pub(crate) fn slow(entry: &Entry, seed: u64) -> Option<Failure> {
    let short = ShortRun::new((entry, 4, seed), Trace::default(), |settings, _| {
        settings.parameters.delta_ns = ms(40);
        settings.conditions = LinkConditions::constant(ms(40));
    });
    short.unwrap().run(|world, _| world.run_for(secs(8))).failure
}

/// A scenario with this number of views and drawn leaders, in which replica 0 has a twin.
fn twins(views: usize, entry: &Entry, number: u64) -> Option<Failure> {
    let twin = vec![ReplicaId(0)];
    let all = Enumeration::new(4, twin, views, 3, Leaders::Drawn, Some(Sample { count: SCENARIOS, seed: 1 }))
        .unwrap();
    ScenarioRun::new(entry, &all.scenario(number)).unwrap().run().failure
}

/// More scenarios than any row plays.
const SCENARIOS: u64 = 1_000_000;

/// HotStuff with timers of 10 to 30 ms.
const FIXED_TIMER: Entry = Entry {
    exam_params: |delta_ns, guarded| {
        let mut params = (HOTSTUFF.exam_params)(delta_ns, guarded)?;
        params.extend([("d0_ms".to_owned(), 10.into()), ("cap_ms".to_owned(), 30.into())]);
        Ok(params)
    },
    ..HOTSTUFF
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "T1",
        failure: "blocks are committed by parent links alone, even if views lie between them (relab/hotstuff issue 249)",
        variant: "jolteon, twins of six views: a block with a certified child is committed",
        caught_by: &[Oracle::Agreement, Oracle::Panic, Oracle::Stopped],
        from: 5_290,
        within: 1_000,
        broken: broken::<Jolteon, ViewsLeftOut>(),
        sound: JOLTEON,
        run: |entry, number| twins(6, entry, number),
    },
    Row {
        id: "T1b",
        failure: "the same with three phases",
        variant: "hotstuff, twins of eight views: a block with a certified grandchild is committed, and complaints carry no certificate",
        caught_by: &[Oracle::Agreement, Oracle::Stopped],
        from: 1_420,
        within: 1_000,
        broken: in_turns(broken::<HotStuff, ViewsLeftOutUnseen>()),
        // With three phases the missing certificates cost views alone.
        sound: in_turns(broken::<HotStuff, NoCertificates>()),
        run: |entry, number| twins(8, entry, number),
    },
    Row {
        id: "T3",
        failure: "one vote more than a quorum triggers the leader a second time",
        variant: "hotstuff: the late vote makes the leader propose again",
        caught_by: &[Oracle::SameSlot],
        from: 0,
        within: 20,
        broken: broken::<HotStuff, FiresAgain>(),
        sound: HOTSTUFF,
        run: nobody,
    },
    Row {
        id: "T4",
        failure: "of two certificates the lower one is kept",
        variant: "hotstuff: all proposals carry the certificate of genesis",
        caught_by: &[Oracle::Accusation, Oracle::Liveness],
        from: 0,
        within: 5,
        broken: broken::<HotStuff, LowestCertificate>(),
        sound: HOTSTUFF,
        run: nobody,
    },
    Row {
        id: "M7, L1",
        failure: "with rotating leaders and one silent replica no block is ever committed",
        variant: "hotstuff: complaints do not carry the last vote",
        caught_by: &[Oracle::Liveness],
        from: 0,
        within: 5,
        broken: broken::<HotStuff, NoLastVote>(),
        sound: HOTSTUFF,
        run: |entry, seed| exam("f silent", 4, entry, seed),
    },
    Row {
        id: "L2",
        failure: "a replica leaves a view on a proposal without votes",
        variant: "hotstuff: a proposal moves its receivers to the next view; one leader proposes to one replica",
        caught_by: &[Oracle::Liveness, Oracle::Livelock, Oracle::Pacemaker],
        from: 0,
        within: 20,
        broken: in_turns(broken::<HotStuff, LeavesUnproven>()),
        sound: in_turns(HOTSTUFF),
        run: proposes_to_one,
    },
    Row {
        id: "L5",
        failure: "a proposal does not carry the proof of its view",
        variant: "hotstuff: replicas in an earlier view drop it",
        caught_by: &[Oracle::Liveness, Oracle::Livelock, Oracle::Pacemaker],
        from: 0,
        within: 40,
        broken: in_turns(broken::<HotStuff, UnprovenProposals>()),
        sound: in_turns(HOTSTUFF),
        run: nobody,
    },
    Row {
        id: "L6",
        failure: "the timeouts of a view are sent once, and a replica that misses them stays behind",
        variant: "hotstuff: NEXT-VIEW is sent to all once, and no other message carries the timeouts",
        caught_by: &[Oracle::Liveness, Oracle::Livelock, Oracle::Pacemaker],
        from: 0,
        within: 40,
        broken: in_turns(broken::<HotStuff, SaidOnce>()),
        sound: in_turns(HOTSTUFF),
        run: nobody,
    },
    Row {
        id: "L7",
        failure: "a timer that never grows is too short for the network",
        variant: "hotstuff: views last 30 ms at most, and messages take 40 ms",
        caught_by: &[Oracle::Liveness, Oracle::Livelock, Oracle::Pacemaker],
        from: 0,
        within: 5,
        broken: FIXED_TIMER,
        sound: HOTSTUFF,
        run: slow,
    },
    Row {
        id: "S1",
        failure: "certificates in messages are not verified",
        variant: "hotstuff: a Byzantine replica sends a certificate of its own for a block that does not exist",
        caught_by: &[Oracle::Liveness, Oracle::Livelock, Oracle::Pacemaker, Oracle::Bounds],
        from: 0,
        within: 20,
        broken: broken::<HotStuff, Credulous<HotStuff>>(),
        sound: Entry { attacks: broken::<HotStuff, Credulous<HotStuff>>().attacks, ..HOTSTUFF },
        run: liars,
    },
    Row {
        id: "S2",
        failure: "the statement of a vote lacks its block: certificates can be moved",
        variant: "hotstuff: a Byzantine replica moves votes, which state their view alone, to a block that does not exist",
        caught_by: &[Oracle::Liveness, Oracle::Livelock, Oracle::Pacemaker, Oracle::Bounds],
        from: 0,
        within: 20,
        broken: broken::<HotStuff, VotesForNoBlock<HotStuff>>(),
        sound: Entry { attacks: broken::<HotStuff, VotesForNoBlock<HotStuff>>().attacks, ..HOTSTUFF },
        run: liars,
    },
    Row {
        id: "S3",
        failure: "one replica makes a certificate alone",
        variant: "hotstuff: signatures are verified, and the number of signers is not checked",
        caught_by: &[Oracle::Liveness, Oracle::Livelock, Oracle::Pacemaker, Oracle::Bounds],
        from: 0,
        within: 20,
        broken: broken::<HotStuff, CountsNobody<HotStuff>>(),
        sound: Entry { attacks: broken::<HotStuff, CountsNobody<HotStuff>>().attacks, ..HOTSTUFF },
        run: liars,
    },
    Row {
        id: "S5",
        failure: "each proposal gets a vote: view and certificate are not checked",
        variant: "hotstuff: each proposal gets a vote",
        caught_by: &[Oracle::SameSlot],
        from: 0,
        within: 20,
        broken: broken::<HotStuff, VotesForAll>(),
        sound: HOTSTUFF,
        run: |entry, seed| standard(entry, ByzantineChoice::All(Byzantine::Twin), seed),
    },
    Row {
        id: "S6",
        failure: "nothing is recorded: a restart is an equivocation",
        variant: "hotstuff: the protocol's records are lost in a restart",
        caught_by: &[Oracle::SameSlot],
        from: 0,
        within: 40,
        broken: broken::<HotStuff, Forgets>(),
        sound: HOTSTUFF,
        run: nobody,
    },
    Row {
        id: "M5",
        failure: "two-chain commits without the proof of the timeouts' certificates (early Fast-HotStuff)",
        variant: "jolteon, twins of six views: timeouts carry and list no certificates, so proposals need not fit them",
        caught_by: &[Oracle::Agreement, Oracle::Panic, Oracle::Stopped],
        from: 0,
        within: 100,
        broken: in_turns(broken::<Jolteon, NoCertificates>()),
        sound: in_turns(JOLTEON),
        run: |entry, number| twins(6, entry, number),
    },
    Row {
        id: "M6",
        failure: "two phases and a lock, and a leader that does not learn the highest lock",
        variant: "jolteon: timeouts carry no certificates, and no replica votes below its lock; one leader proposes to one replica, at the worst moment",
        caught_by: &[Oracle::Livelock, Oracle::Liveness],
        from: 0,
        within: 10,
        broken: in_turns(broken::<Jolteon, HiddenLock>()),
        sound: in_turns(JOLTEON),
        run: proposes_to_one_in_time,
    },
    Row {
        id: "M5b",
        failure: "two-chain commits with a lock that replicas ignore",
        variant: "hotstuff2, twins of six views: a vote needs no lock, and timeouts carry no certificates",
        caught_by: &[Oracle::Agreement, Oracle::Panic, Oracle::Stopped],
        from: 0,
        within: 100,
        broken: in_turns(broken::<NoLock, NoCertificates>()),
        sound: in_turns(HOTSTUFF2),
        run: |entry, number| twins(6, entry, number),
    },
    Row {
        id: "M6b",
        failure: "two phases and a lock, and a leader that waits but does not learn the highest lock",
        variant: "hotstuff2: neither timeouts nor reports to the leader carry certificates; one leader proposes to one replica, at the worst moment",
        caught_by: &[Oracle::Livelock, Oracle::Liveness],
        from: 0,
        within: 10,
        broken: in_turns(broken::<HotStuff2, HiddenLock>()),
        sound: in_turns(HOTSTUFF2),
        run: proposes_to_one_in_time,
    },
    Row {
        id: "M10b",
        failure: "votes of different views are counted together",
        variant: "hotstuff: a late vote of an older view counts in the current one",
        caught_by: &[Oracle::Accusation],
        from: 0,
        within: 100,
        broken: broken::<HotStuff, VotesOfTwoViews>(),
        sound: HOTSTUFF,
        run: nobody,
    },
    Row {
        id: "M28",
        failure: "the cluster stops under load after some fifty blocks",
        variant: "hotstuff: after fifty proposals replicas ignore all timers",
        caught_by: &[Oracle::Liveness, Oracle::Livelock, Oracle::Pacemaker],
        from: 0,
        within: 50,
        broken: broken::<HotStuff, DeafToTimers>(),
        sound: HOTSTUFF,
        run: nobody,
    },
];

/// Published faults without a variant, and the reason.
pub(crate) const NO_VARIANTS: &[(&str, &str)] = &[
    (
        "T2, T5, T6",
        "faults of a text: unbound names, missing arguments, dummy blocks; no program that compiles has them",
    ),
    ("T7", "a lemma that counts too few honest leaders; its effect is L1"),
    (
        "L3, L4",
        "with three phases it costs views alone, since a quorum has seen the certificate of each locked block: T1b's variant without its other flaw passes; with two phases it is M5 and M6",
    ),
    (
        "L8",
        "votes and complaints are kept by sender, the newest two and the newest one: no table can be filled, and an oracle checks the bounds (`s09_*` tries)",
    ),
    (
        "L9",
        "a proposal carries one block, and missing blocks are fetched by their hashes: no replica cuts a chain by heights that others claim",
    ),
    (
        "L10",
        "the pool is the host's, and a bundle leaves it after its execution (`s13_*`); protocols have none",
    ),
    ("S4", "the host decides a height once: a repeated commit has no effect (20 seeds of that variant pass)"),
    (
        "S7",
        "the host executes blocks in the order of their heights, and each block in the order of its payload; no protocol can change that",
    ),
    ("X1", "clients are the host's: M29"),
];
