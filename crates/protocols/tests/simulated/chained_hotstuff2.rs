//! Scenarios of HotStuff-2 (`jolteon-hotstuff2` §14), and flawed variants of its rules.

use crate::chained_liars::{ControlledLeader, follows};
use crate::chained_support::{Content, HotStuff2, PROPOSE, Rules, VOTE, entry, listen};
use crate::support::{begin, go, incr, r, settle, view, wait_for, world_of};
use quorate_consensus::parts::chain::Tip;
use quorate_consensus::parts::pacemaker::FailedTurns;
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Certificate, Entry, Figures, Spec, To};
use quorate_protocols::chained::{Chained, ChainedParams, NoOwnParams, Notes, Proposal};
use quorate_sim::{Costs, LinkConditions, Survives, Verdict, ms, secs};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Committee, Kind, Payload};

/// HotStuff-2 whose leaders may not wait, and whose replicas may vote below their lock.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Variant<const LEADER_WAITS: bool, const HEEDS_LOCK: bool>(HotStuff2);

/// Leaders propose at once after a failed view, and replicas report no certificates.
pub(crate) type NoWait = Variant<false, true>;
/// Replicas vote for each block that fits its certificate.
pub(crate) type NoLock = Variant<true, false>;

const NO_WAIT: Entry = Entry::of::<Chained<NoWait>>();

impl<const LEADER_WAITS: bool, const HEEDS_LOCK: bool> Rules for Variant<LEADER_WAITS, HEEDS_LOCK> {
    const SPEC: Spec = HotStuff2::SPEC;
    const FIGURES: Figures = HotStuff2::FIGURES;
    const TIMEOUT: Kind = HotStuff2::TIMEOUT;
    const ADVANCE: Kind = HotStuff2::ADVANCE;
    const NOTES: Notes = HotStuff2::NOTES;
    const LINKS: usize = HotStuff2::LINKS;
    const TIMEOUTS_LIST_CERTIFICATES: bool = HotStuff2::TIMEOUTS_LIST_CERTIFICATES;
    const LEADER_WAITS: bool = LEADER_WAITS;
    type OwnParams = NoOwnParams;

    fn allows_vote(&self, proposal: &Proposal<'_>) -> bool {
        !HEEDS_LOCK || self.0.allows_vote(proposal)
    }

    fn note_vote(&mut self, parent: Tip) {
        self.0.note_vote(parent);
    }

    fn failed_turns(params: &ChainedParams<NoOwnParams>, committee: &Committee) -> FailedTurns {
        HotStuff2::failed_turns(params, committee)
    }
}

impl<const LEADER_WAITS: bool, const HEEDS_LOCK: bool> Wire for Variant<LEADER_WAITS, HEEDS_LOCK> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        HotStuff2::decode(reader).map(Self)
    }
}

/// One honest replica alone has a lock, because a Byzantine leader has shown the certificate to it alone. The timeouts of the
/// view come from the others. Returns whether the next view has a certificate.
fn next_view_is_certified(protocol: &Entry) -> bool {
    let mut setup = ControlledLeader::of::<HotStuff2>(protocol, 1010, 1, |_| {});
    let at = setup.view;
    let (hidden, failed) = (at.next(), at.plus(2));
    let [first, second, locked] = [at, failed, at.plus(3)].map(|view| r(u16::try_from(view.0 % 4).unwrap()));
    let listener = listen::<HotStuff2>(&mut setup.world, move |frame, _| {
        let (kind, of) = (frame.content.kind, frame.content.view);
        // Two honest votes and the controlled replica's make the certificate, and timeouts carry too few of them.
        let is_proposal = kind == PROPOSE && of == at && frame.to == second;
        let reveals = [HotStuff2::TIMEOUT, HotStuff2::ADVANCE].contains(&kind) && of == hidden;
        if is_proposal || (frame.from == locked && reveals) { Verdict::Drop } else { Verdict::Pass }
    });
    std::mem::swap(&mut *listener.borrow_mut(), &mut *setup.listener.borrow_mut());
    setup.listener = listener;
    let ids = setup.world.submit(0, &[incr("n")]);
    let others = setup.others();
    let all_in = |world: &quorate_sim::World, of| others.iter().all(|id| view(world, *id) >= of);
    go(setup.world.run_while("the first view fails", secs(10), |world| !all_in(world, hidden)), &setup.world);
    let proof = setup.listener.borrow().proof();
    let votes: Vec<_> = {
        let listener = setup.listener.borrow();
        let votes = listener.votes.iter().map(|(_, vote)| vote).filter(|vote| vote.body.view == at);
        votes.copied().collect()
    };
    let vote: BlockVote = votes[0].body;
    let statement = vote.statement(VOTE);
    let mut signed: Vec<_> = [first, locked]
        .iter()
        .map(|by| (*by, votes.iter().find(|vote| vote.by == *by).unwrap().signature))
        .collect();
    signed.push((setup.controlled, setup.world.sign(setup.controlled, &statement)));
    let qc = Certificate::of(statement, &signed);
    let block = setup.block_on(&qc, hidden, &Payload::default(), 1);
    setup.send::<HotStuff2>(To::One(locked), Content::Propose(block, follows(qc)));
    go(setup.world.run_for(ms(20)), &setup.world);
    assert!(setup.voters(hidden).contains(locked), "the lock of one replica alone");
    for id in [first, second] {
        setup.send::<HotStuff2>(To::One(id), Content::Timeout(hidden, proof.clone(), None));
    }
    go(
        setup.world.run_while("the next view ends", secs(10), |world| !all_in(world, at.plus(3))),
        &setup.world,
    );
    let is_certified = setup.listener.borrow().certificate(failed).is_some();
    setup.recovers(&ids);
    is_certified
}

/// Test 10: after the wait the leader has the certificate of the lock that one replica alone has, and its proposal is
/// accepted. Without the wait the view fails, a later view succeeds, and safety holds.
#[test]
fn t10_leader_that_waits_learns_a_hidden_lock() {
    assert!(next_view_is_certified(entry::<HotStuff2>()));
    assert!(!next_view_is_certified(&NO_WAIT));
}

/// Test 11: the first timer, and with it the wait, is far too short for the network. Commits continue once timers have doubled
/// often enough.
#[test]
fn t11_wait_that_is_too_short_costs_time_alone() {
    let mut world = world_of(entry::<HotStuff2>(), 1011, |settings| {
        (settings.conditions, settings.costs) = (LinkConditions::constant(ms(20)), Costs::NONE);
        settings.set("d0_ms", 12);
    });
    begin(&mut world);
    world.crash(r(1), Survives::Everything);
    let ids = world.submit(0, &[incr("n"), incr("n")]);
    wait_for(&mut world, &ids, secs(30));
    world.start(r(1)).unwrap();
    settle(&mut world);
}
