//! Sync HotStuff with rotating leaders (`sync-hotstuff` §11): standard seeds, the cost of an idle cluster, and the schedule
//! of §23 that justifies the rule about views after an uncertified one.

use crate::side_by_side::run_all;
use crate::support::{begin, go, level, put, r, settle, wait_for, world_of};
use crate::sync_exact_world::{DELTA_NS, HEARTBEAT_NS, NEAR_NS, exact};
use crate::sync_flaws::Moved;
use crate::sync_planned_run::answer_probes;
use quorate_consensus::flawed::{Flaw, Flawed};
use quorate_consensus::parts::chain::{bind_certificate, empty_payload};
use quorate_consensus::{Certificate, Commit, Effect, Entry, Past, Seal, Timers, To};
use quorate_protocols::sync_hotstuff::rotating::{Header, Rotating, RotatingMessage, RotatingRecord, vote};
use quorate_protocols::sync_hotstuff::{SyncHotStuff, Timer};
use quorate_sim::{
    Change, Failure, Fault, Frame, NetworkFault, Oracle, Places, Settings, Survives, Verdict, World, ms,
    secs, seed,
};
use quorate_types::wire::frame::PROTOCOL;
use quorate_types::{Block, BlockId, Kind, ReplicaId, Time, View, Wire as _};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const SOUND: Entry = Entry::of::<SyncHotStuff<Rotating>>();

pub(crate) fn registered() -> &'static Entry {
    quorate_protocols::find("sync-hotstuff-rr").unwrap()
}

/// Standard seeds within the bound: half of them with the guard on.
#[test]
fn seeds_within_the_bound_pass() {
    for (n, seeds) in [(3, 12), (5, 4), (7, 2)] {
        let reports =
            run_all(&(0..seeds).collect::<Vec<_>>(), |seed| seed::run(registered(), Some(n), seed).unwrap());
        for report in reports {
            assert!(report.failure.is_none(), "n = {n} {report}");
            assert!(report.requests >= 400 && report.virtual_ns >= secs(60), "{report}");
        }
    }
}

/// §20: with τ of a second, no more than two syncs in a second at each of three replicas, and few messages.
#[test]
fn idle_cluster_hardly_syncs() {
    let mut world = world_of(registered(), 20, |settings| settings.parameters.exam = false);
    begin(&mut world);
    go(world.run_for(secs(5)), &world);
    let count = |world: &World| -> (u64, u64) {
        let syncs = world.replicas().map(|id| world.syncs(id)).sum();
        let kinds = ["propose", "vote", "certified"].map(Kind::new);
        (syncs, kinds.iter().map(|kind| world.sent().get(kind).copied().unwrap_or_default()).sum())
    };
    let before = count(&world);
    go(world.run_for(secs(200)), &world);
    let after = count(&world);
    let (syncs, messages) = (after.0 - before.0, after.1 - before.1);
    let n = world.settings().n as u64;
    assert_eq!(n, 3);
    assert!(syncs <= 2 * 200 * n, "{syncs} syncs in 200 s");
    let each = (n - 1) + 2 * n * (n - 1);
    assert!((180 * each..=200 * each).contains(&messages), "{messages} messages: a view in a second");
}

/// §9, §11: a crashed leader costs its view 5Δ + τ, blames and a wait of Δ; the next block commits with its successor.
#[test]
fn crashed_leader_is_passed_over_in_time() {
    for n in [3, 5, 7] {
        let mut world = exact(registered(), n, 2, |settings| {
            settings.client.audience = quorate_sim::Audience::All;
        });
        begin(&mut world);
        level(&mut world);
        let leader = world.status(r(0)).unwrap().leader;
        world.crash(leader, Survives::Everything);
        let crashed = world.now();
        let id = world.submit(1, &[put("k", 0)])[0];
        wait_for(&mut world, &[id], secs(5));
        let took = world.now().since(crashed);
        // The view, Status and proposal, the next proposal without a heartbeat, and the 2Δ of the vote for it.
        let bound = 5 * DELTA_NS + HEARTBEAT_NS + DELTA_NS + 2 * DELTA_NS + 2 * DELTA_NS + 8 * NEAR_NS;
        assert!(took <= bound, "n = {n}: {took}");
        let _ = world.start(leader);
        settle(&mut world);
    }
}

/// A replica that waits 2Δ for a block after an uncertified view, as if all could vote for it (§11, 4 left out).
///
/// This wrapper measures the time itself, and commits at the first call after it.
#[derive(Default)]
pub(crate) struct GapCommits {
    me: Option<ReplicaId>,
    /// Own votes without a wait of the protocol, with their times once known.
    waits: BTreeMap<View, (BlockId, Option<Time>)>,
    certified: Vec<BlockId>,
}

impl Flaw<SyncHotStuff<Rotating>> for GapCommits {
    fn opens(&mut self, me: ReplicaId, _: &mut Past<RotatingRecord>) {
        self.me = Some(me);
    }

    fn hears(
        &mut self,
        _: &SyncHotStuff<Rotating>,
        message: RotatingMessage,
        seal: &Seal,
    ) -> Vec<RotatingMessage> {
        match &message {
            RotatingMessage::Vote(header) => {
                let (view, id) = (header.body.block.view, header.body.block.id());
                if self.waits.get(&view).is_some_and(|(known, _)| *known != id) {
                    self.waits.remove(&view);
                } else if header.body.parent_view.next() != view && self.me == Some(seal.by) {
                    self.waits.entry(view).or_insert((id, None));
                }
            }
            RotatingMessage::Certified(certificate) => self.certified.push(certificate.block()),
            RotatingMessage::Evidence(evidence) => drop(self.waits.remove(&evidence.view())),
            _ => {}
        }
        vec![message]
    }

    fn acts(&mut self, _: &SyncHotStuff<Rotating>, now: Time, effects: &mut Vec<Effect>) {
        let certified = &self.certified;
        self.waits.retain(|_, (id, since)| {
            let since = *since.get_or_insert(now);
            let is_over = now >= since.plus(2 * DELTA_NS) && certified.contains(id);
            if is_over {
                effects.push(Effect::Commit(Commit::Chain(*id)));
            }
            !is_over
        });
    }
}

/// A replica whose commit timers take Δ instead of 2 Δ (§15).
#[derive(Default)]
pub(crate) struct OneDeltaTimer(Moved);

impl Flaw<SyncHotStuff<Rotating>> for OneDeltaTimer {
    fn clock(&mut self, _: &SyncHotStuff<Rotating>, timer: Timer, now: Time) -> Time {
        self.0.clock(timer == Timer::Commit, now)
    }

    fn sets_timers(&mut self, _: &SyncHotStuff<Rotating>, _: Time, timers: &mut Timers<Timer>) {
        self.0.follow(timers, Timer::Commit, |at| at.minus(DELTA_NS));
    }
}

/// Seven replicas. The leaders of three consecutive views lie from some moment on.
struct Schedule {
    world: World,
    /// Proposals by view.
    headers: Rc<RefCell<BTreeMap<View, Header>>>,
    /// Senders and kinds of messages that take Δ to all from now on.
    late: Rc<RefCell<Vec<(ReplicaId, Kind)>>>,
    /// First view of the liars, and the liars.
    view: View,
    liars: Vec<ReplicaId>,
    /// Time since which all are in that view.
    began: Time,
    /// Whether liars answer probes of the guard.
    answers_probes: bool,
}

impl Schedule {
    /// Runs until the next height is one at which empty blocks are committed.
    fn new(entry: &Entry, change: impl FnOnce(&mut Settings)) -> Self {
        let mut world = exact(entry, 7, 23, change);
        let headers: Rc<RefCell<BTreeMap<View, Header>>> = Rc::default();
        let late: Rc<RefCell<Vec<(ReplicaId, Kind)>>> = Rc::default();
        let (heard, slow) = (Rc::clone(&headers), Rc::clone(&late));
        world.hook(move |_, frame| {
            if let Some(RotatingMessage::Propose { header, .. }) = decoded(frame) {
                heard.borrow_mut().entry(header.block.view).or_insert(header);
            }
            let is_late = slow.borrow().contains(&(frame.from, frame.content.kind));
            if is_late { Verdict::Delay(DELTA_NS - NEAR_NS) } else { Verdict::Pass }
        });
        begin(&mut world);
        level(&mut world);
        let proposed = Rc::clone(&headers);
        let are_there = |world: &World| {
            let view = world.status(r(0)).unwrap().view;
            let last = proposed.borrow().get(&view.minus(1)).map(|header| header.block.height.0);
            let together = world.replicas().all(|id| world.status(id).unwrap().view == view);
            together && last.is_some_and(|height| height % 8 == 7)
        };
        go(
            world.run_while("all begin a view at a height that commits empty blocks", secs(30), |world| {
                !are_there(world)
            }),
            &world,
        );
        let (view, began) = (world.status(r(0)).unwrap().view, world.now());
        let liars: Vec<ReplicaId> =
            (0..3).map(|ahead| r(u16::try_from((view.0 - 1 + ahead) % 7).unwrap())).collect();
        liars.iter().for_each(|liar| world.take_control(*liar));
        Self { world, headers, late, view, liars, began, answers_probes: false }
    }

    /// Returns the honest replicas, the next leader first.
    fn honest(&self) -> Vec<ReplicaId> {
        let all = (0..7).map(|ahead| r(u16::try_from((self.view.0 - 1 + ahead) % 7).unwrap()));
        all.skip(3).collect()
    }

    /// Runs until so many milliseconds after all have begun that view.
    fn run_until(&mut self, at_ms: u64) -> bool {
        self.world.run_until(self.began.plus(ms(at_ms))).is_ok()
    }

    /// Returns a liar's empty proposal in its view, on top of a block that another view has certified.
    fn header(&self, ahead: u64, on: &Header) -> Header {
        let view = self.view.plus(ahead);
        let parent_view = on.block.view;
        let block = Block {
            parent: on.block.id(),
            height: on.block.height.next(),
            view,
            proposer: self.liars[usize::try_from(ahead).unwrap()],
            time_ns: 0,
            payload: empty_payload(),
            extra: bind_certificate(parent_view, on.block.id()),
        };
        Header { block, parent_view }
    }

    /// Returns a certificate of the liars' votes and of one more vote that was cast.
    fn certificate(&self, header: &Header, with: ReplicaId) -> Certificate {
        let statement = vote(header.block.view, header.block.id());
        let voters = self.liars.iter().copied().chain([with]);
        let votes: Vec<_> = voters.map(|by| (by, self.world.sign(by, &statement))).collect();
        Certificate::of(statement, &votes)
    }

    /// Sends a proposal of a view's leader to one replica, with the certificate of its parent.
    fn proposes(&mut self, to: ReplicaId, header: &Header, parent: Certificate) {
        let message = RotatingMessage::Propose { header: header.clone(), parent };
        self.world.send_as(header.block.proposer, To::One(to), &message);
    }

    fn shows(&mut self, to: ReplicaId, certificate: Certificate) {
        let liar = self.liars[0];
        self.world.send_as(liar, To::One(to), &RotatingMessage::Certified(certificate));
    }

    /// Sends blames of all liars for a view.
    fn blame(&mut self, to: &[ReplicaId], ahead: u64) {
        for liar in self.liars.clone() {
            let to = To::Some(to.iter().copied().collect());
            self.world.send_as(liar, to, &RotatingMessage::Blame(self.view.plus(ahead)));
        }
    }

    /// Sends evidence that the view has ended.
    fn ran(&mut self, at_ms: u64) -> Result<(), Failure> {
        let end = self.began.plus(ms(at_ms));
        while self.answers_probes && self.world.now() < end {
            self.world.run_until(end.min(self.world.now().plus(ms(5))))?;
            answer_probes(&mut self.world, &self.liars);
        }
        self.world.run_until(end)
    }

    /// Returns the verdict of the oracles after a while without messages of liars.
    fn end(mut self) -> Result<(), Failure> {
        match self.world.failure() {
            Some(failure) => Err(failure.clone()),
            None => self.world.run_for(secs(3)),
        }
    }

    fn slow(&self, by: ReplicaId, kind: &'static str) {
        self.late.borrow_mut().push((by, Kind::new(kind)));
    }
}

pub(crate) fn decoded(frame: &Frame) -> Option<RotatingMessage> {
    if frame.frame_type != PROTOCOL {
        return None;
    }
    let whole = RotatingMessage::from_bytes(&frame.body).ok();
    whole.or_else(|| RotatingMessage::from_bytes(frame.body.split_last_chunk::<64>()?.0).ok())
}

/// §23, gap-commits: three liars lead consecutive views. The first one shows its block X to q, in time for a vote of q and
/// too late for the others, which have left the view. It shows the certificate of X to q alone before the next view. The
/// second one proposes B, which conflicts with X, on the parent of X to r. q is locked on X and refuses. 2Δ after its vote r
/// has a certificate of B, long before the evidence of q must arrive. The third one extends X with q alone.
fn gap_commits(entry: &Entry) -> (Schedule, Header, Header) {
    let mut s = Schedule::new(entry, |_| {});
    let [q, r, p, o] = s.honest()[..] else { panic!("four of seven") };
    let below = s.headers.borrow()[&s.view.minus(1)].clone();
    let certified = s.certificate(&below, q);
    // View v: 5Δ + τ are 700 ms.
    s.blame(&[r, p, o], 0);
    let x = s.header(0, &below);
    s.run_until(640);
    s.slow(q, "vote");
    s.proposes(q, &x, certified.clone());
    s.run_until(710);
    s.slow(q, "certified");
    let of_x = s.certificate(&x, q);
    s.shows(q, of_x.clone());
    // View v + 1: q has begun it at 720, the others after their wait at about 800.
    s.run_until(1_000);
    s.blame(&[q], 1);
    let b = s.header(1, &below);
    s.run_until(1_290);
    s.slow(q, "evidence");
    s.slow(r, "certified");
    s.proposes(r, &b, certified);
    // r votes at 1300. q blames at 1420, with the liars, and waits until 1520.
    s.run_until(1_480);
    let of_b = s.certificate(&b, r);
    s.shows(r, of_b.clone());
    s.run_until(1_496);
    s.shows(r, of_b);
    // View v + 2.
    let y = s.header(2, &x);
    if s.run_until(1_530) {
        s.proposes(q, &y, of_x);
        if s.run_until(1_545) {
            let of_y = s.certificate(&y, q);
            s.shows(q, of_y);
        }
    }
    (s, x, b)
}

/// Returns the verdict, for the museum.
pub(crate) fn gap_commits_forks(entry: &Entry) -> Result<(), Failure> {
    let (s, ..) = gap_commits(entry);
    s.end()
}

/// A leader shows X to q and X' to r just before Δ after the vote of q. The votes of q or r and of the liars certify each.
/// The next leader extends X' with all but q. Messages between q and r about these blocks take Δ. In other cases all honest
/// messages, or only those of and to q, take `late_ns` more, and liars answer probes at once.
fn two_blocks(
    entry: &Entry,
    change: impl FnOnce(&mut Settings),
    late_ns: u64,
    only_q: bool,
) -> Result<(), Failure> {
    let mut s = Schedule::new(entry, change);
    // A flawed r may not cast the vote that the schedule signs for it.
    s.world.ignore_own_statements();
    s.answers_probes = only_q;
    let [q, r, p, o] = s.honest()[..] else { panic!("four of seven") };
    let below = s.headers.borrow()[&s.view.minus(1)].clone();
    let certified = s.certificate(&below, q);
    let x = s.header(0, &below);
    let mut other = x.clone();
    other.block.time_ns = 1;
    let y = s.header(1, &other);
    [q, r].iter().for_each(|id| s.slow(*id, "vote"));
    let honest = s.honest();
    let among = |ids: &[ReplicaId]| Places::of(ids.iter().map(|id| id.index()));
    let (from, to) = if only_q { (among(&[q]), among(&[r, p, o])) } else { (among(&honest), among(&honest)) };
    let change = Change::Late { by_ns: late_ns, until: Time::ZERO };
    let slow = (late_ns > 0).then(|| {
        let fault = Some(Fault::BeyondDelta);
        s.world.begin_fault(NetworkFault { from, to, both_ways: true, change, fault })
    });
    s.proposes(q, &x, certified.clone());
    s.ran(15)?;
    let of_x = s.certificate(&x, q);
    s.shows(q, of_x);
    // q has voted at 10, and r votes at 100.
    s.ran(90)?;
    s.proposes(r, &other, certified);
    s.ran(101)?;
    let of_other = s.certificate(&other, r);
    for to in [r, p, o] {
        s.shows(to, of_other.clone());
        s.proposes(to, &y, of_other.clone());
    }
    s.ran(125)?;
    let of_y = s.certificate(&y, r);
    for to in [r, p, o] {
        s.shows(to, of_y.clone());
    }
    s.ran(900)?;
    if let Some(slow) = slow {
        s.world.end_fault(slow);
    }
    s.end()
}

/// §15, for the museum: within the bound.
pub(crate) fn two_blocks_in_a_view(entry: &Entry) -> Result<(), Failure> {
    two_blocks(entry, |_| {}, 0, false)
}

#[test]
fn s16_commits_resume_after_a_slowdown_of_any_length() {
    crate::sync_beyond::s16_commits_resume_after_a_slowdown_of_any_length(registered());
}

/// §14, scenario 16: all honest messages are slower than Δ. Without the guard the agreement oracle fires; with it there is no
/// fork.
#[test]
fn s16_only_unguarded_replicas_fork_beyond_the_bound() {
    let failure = two_blocks(&SOUND, |_| {}, 7 * DELTA_NS, false).unwrap_err();
    assert_eq!(failure.oracle, Oracle::Agreement, "{failure}");
    assert_eq!(two_blocks(&SOUND, guarded, 7 * DELTA_NS, false), Ok(()));
}

fn guarded(settings: &mut Settings) {
    settings.set("guarded", true);
}

/// S13 with the guard on: only the links of one honest replica are slow. It is late for each of its peers, and at most f
/// peers are late for it: no replica is in doubt (§19, "not promised").
#[test]
fn s13_slow_links_of_some_replicas_fork_guarded_ones_too() {
    let failure = two_blocks(&SOUND, guarded, 7 * DELTA_NS, true).unwrap_err();
    assert_eq!(failure.oracle, Oracle::Agreement, "{failure}");
}

/// The schedule forks only replicas that do not check whether a view follows a certified one.
#[test]
fn gap_commits_forks_without_the_rule_about_skipped_views() {
    let flawed = Entry::of::<Flawed<SyncHotStuff<Rotating>, GapCommits>>();
    let failure = gap_commits_forks(&flawed).unwrap_err();
    assert_eq!(failure.oracle, Oracle::Agreement, "{failure}");
    let (mut s, x, b) = gap_commits(&SOUND);
    let ran = s.world.run_for(secs(3));
    go(ran, &s.world);
    // The schedule took place: all have committed X, and B was certified, voted for by r, and not committed.
    assert_eq!((x.block.height, x.block.parent), (b.block.height, b.block.parent));
    for id in s.honest() {
        assert!(s.world.decided(id) >= x.block.height, "{id}");
        assert_eq!(s.world.status(id).unwrap().alarms.doubts, 0, "{id}");
    }
}
