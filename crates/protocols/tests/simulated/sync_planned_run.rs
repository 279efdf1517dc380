//! Up to f liars that follow a plan, in a world with planned message delays: for schedules that no random search finds.

use crate::support::{begin, incr, level};
use crate::sync_exact_world::{MessageLog, exact, listen};
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Certificate, Entry, Signed, To};
use quorate_protocols::sync_hotstuff::{Answer, Header, Lock, SyncMessage, bind_base, vote};
use quorate_sim::{ControlledInput, Failure, Frame, Settings, Verdict, World, ms};
use quorate_types::codec::Wire as _;
use quorate_types::wire::frame;
use quorate_types::{Block, BlockId, Height, Incarnation, Kind, ReplicaId, ReplicaSet, View};
use std::cell::RefCell;
use std::rc::Rc;

/// End of a chain.
pub(crate) type End = (Height, BlockId);

/// Delays of messages between honest replicas by sender, receiver and kind.
type Path = (ReplicaId, ReplicaId, Option<Kind>, u64);

/// See the module.
pub(crate) struct PlannedRun {
    pub(crate) world: World,
    pub(crate) message_log: Rc<RefCell<MessageLog>>,
    pub(crate) liars: Vec<ReplicaId>,
    /// Whether liars answer probes of the guard.
    pub(crate) answers_probes: bool,
    paths: Rc<RefCell<Vec<Path>>>,
}

/// First byte of an answer to a probe, and of a request for a block.
const PROBE_ANSWER: u8 = 10;
const ASK_BLOCK: u8 = 6;

pub(crate) fn ids(all: &[u16]) -> Vec<ReplicaId> {
    all.iter().copied().map(ReplicaId).collect()
}

/// Lets these replicas answer all probes at once.
pub(crate) fn answer_probes(world: &mut World, liars: &[ReplicaId]) {
    for liar in liars {
        for heard in world.received(*liar) {
            let ControlledInput::Frame { from, frame_type, body, content } = heard else { continue };
            if content.kind.as_str() == "host.probe" {
                // The answer has the number of the probe, and nothing waits for the disk.
                let mut answer = vec![PROBE_ANSWER];
                answer.extend_from_slice(body.get(1..).unwrap());
                0u64.encode(&mut answer);
                world.now().encode(&mut answer);
                world.send_frame_as(*liar, To::One(from), frame_type, answer.into());
            }
        }
    }
}

impl PlannedRun {
    /// Returns a world with all replicas at one height in the first view and no message on its way. These replicas lie from
    /// now on.
    pub(crate) fn new(entry: &Entry, n: usize, liars: &[u16], change: impl FnOnce(&mut Settings)) -> Self {
        let mut planned = Self::honest(entry, n, change);
        planned.corrupt(liars);
        planned
    }

    /// Returns the same without liars.
    pub(crate) fn honest(entry: &Entry, n: usize, change: impl FnOnce(&mut Settings)) -> Self {
        let mut world = exact(entry, n, 23, change);
        let paths: Rc<RefCell<Vec<Path>>> = Rc::default();
        let (shared, near_ns) = (Rc::clone(&paths), world.settings().conditions.delay_ns);
        let message_log = listen(&mut world, move |_, frame| delay(&shared.borrow(), frame, near_ns));
        begin(&mut world);
        level(&mut world);
        Self { world, message_log, liars: Vec::new(), answers_probes: false, paths }
    }

    /// Makes these replicas controlled replicas. Their earlier honest messages arrive, and are committed.
    pub(crate) fn corrupt(&mut self, liars: &[u16]) {
        self.liars = ids(liars);
        self.liars.iter().for_each(|liar| self.world.take_control(*liar));
        let last = self.tip().0;
        let is_open = |world: &World| world.honest().any(|id| world.decided(id) < last);
        self.world.run_while("all is committed", ms(400), is_open).unwrap();
        self.world.run_for(2 * self.world.settings().conditions.delay_ns).unwrap();
    }

    /// Sets the delay of messages from these to those replicas, for one kind or for all.
    pub(crate) fn takes(&mut self, from: &[u16], to: &[u16], kind: Option<&'static str>, span_ns: u64) {
        for from in ids(from) {
            for to in ids(to) {
                self.paths.borrow_mut().push((from, to, kind.map(Kind::new), span_ns));
            }
        }
    }

    pub(crate) fn run(&mut self, span_ns: u64) -> Result<(), Failure> {
        let end = self.world.now().plus(span_ns);
        // Liars answer probes at once.
        while self.answers_probes && self.world.now() < end {
            self.world.run_until(end.min(self.world.now().plus(ms(5))))?;
            answer_probes(&mut self.world, &self.liars);
        }
        self.world.run_until(end)
    }

    /// Makes one replica ask another for a block.
    pub(crate) fn ask_for(&mut self, by: u16, of: u16, (height, id): End) {
        let mut question = vec![ASK_BLOCK];
        id.encode(&mut question);
        height.encode(&mut question);
        height.encode(&mut question);
        self.world.send_frame_as(ReplicaId(by), To::One(ReplicaId(of)), frame::HOST, question.into());
    }

    pub(crate) fn send(&mut self, by: u16, to: &[u16], message: &SyncMessage) {
        let to = To::Some(ids(to).into_iter().collect::<ReplicaSet>());
        self.world.send_as(ReplicaId(by), to, message);
    }

    fn leader(&self, view: View) -> ReplicaId {
        let n = u64::try_from(self.world.settings().n).unwrap();
        ReplicaId(u16::try_from((view.0 - 1) % n).unwrap())
    }

    /// Returns the last block that was proposed in the first view.
    pub(crate) fn tip(&self) -> End {
        let message_log = self.message_log.borrow();
        let last = message_log.headers.iter().rfind(|((view, _), _)| *view == View(1));
        last.map(|((_, height), header)| (*height, header.block.id())).unwrap()
    }

    /// Returns a header of a view's leader; different times make different blocks.
    pub(crate) fn header(&self, view: View, (height, parent): End, base: BlockId, time_ns: u64) -> Header {
        let block = Block {
            parent,
            height: height.next(),
            view,
            proposer: self.leader(view),
            time_ns,
            payload: empty_payload(),
            extra: bind_base(base),
        };
        Header { block, base }
    }

    /// Returns a header of the first view, whose base is genesis.
    pub(crate) fn first(&self, on: End, time_ns: u64) -> Header {
        self.header(View(1), on, BlockId::ZERO, time_ns)
    }

    /// Returns the honest voters for a block in a view.
    pub(crate) fn voters(&self, view: View, (height, id): End) -> Vec<ReplicaId> {
        let message_log = self.message_log.borrow();
        let is_for = |message: &SyncMessage| match message {
            SyncMessage::Vote(header) => (header.body.block.view, header.body.block.id()) == (view, id),
            SyncMessage::FirstVote { view: of, height: at, base } => (*of, *at, *base) == (view, height, id),
            _ => false,
        };
        let said = message_log.sent.iter().filter(|sent| is_for(&sent.message)).map(|sent| sent.from);
        let mut voters: Vec<ReplicaId> = said.filter(|by| !self.liars.contains(by)).collect();
        voters.sort_unstable();
        voters.dedup();
        voters
    }

    /// Returns the certificate of the honest votes and those of the liars, if they are enough. No replica can sign for an honest
    /// replica.
    pub(crate) fn certificate(&self, view: View, end: End) -> Option<Certificate> {
        self.certificate_of(view, end, self.world.settings().f + 1)
    }

    pub(crate) fn certificate_of(&self, view: View, end: End, enough: usize) -> Option<Certificate> {
        let statement = vote(view, end.0, end.1);
        let mut signers = self.voters(view, end);
        signers.extend(&self.liars);
        signers.sort_unstable();
        let votes: Vec<_> = signers.into_iter().map(|by| (by, self.world.sign(by, &statement))).collect();
        (votes.len() >= enough).then(|| Certificate::of(statement, &votes))
    }

    /// Returns the lock of that certificate, which must exist.
    pub(crate) fn lock(&self, view: View, end: End) -> Lock {
        Lock { responsive: None, tip: self.certificate(view, end).unwrap() }
    }

    /// Sends a leader's proposal to these replicas.
    pub(crate) fn propose(&mut self, to: &[u16], header: &Header) {
        let block = &header.block;
        let parent = self.certificate(block.view, (block.height.minus(1), block.parent)).unwrap();
        let leader = self.leader(block.view).0;
        self.send(leader, to, &SyncMessage::Propose { header: header.clone(), parent });
    }

    /// Sends votes of all liars for it to these replicas.
    pub(crate) fn liars_vote(&mut self, to: &[u16], header: &Header) {
        for liar in self.liars.clone() {
            self.votes(liar.0, to, header);
        }
    }

    /// Sends the vote of one of them.
    pub(crate) fn votes(&mut self, liar: u16, to: &[u16], header: &Header) {
        let by = self.leader(header.block.view);
        let signature = self.world.sign(by, &header.statement());
        self.send(liar, to, &SyncMessage::Vote(Signed { body: header.clone(), by, signature }));
    }

    /// Sends this message of all liars.
    pub(crate) fn liars_send(&mut self, to: &[u16], message: &SyncMessage) {
        for liar in self.liars.clone() {
            self.send(liar.0, to, message);
        }
    }

    /// Sends an empty answer of a liar with this stage.
    pub(crate) fn answers(&mut self, to: &[u16], stage: RecoveryStage) {
        let answer = Answer::bare(Incarnation::ZERO, stage);
        self.liars_send(to, &SyncMessage::Answer(Box::new(answer)));
    }

    /// Lets a liar lead a view for these replicas. It extends the tip of a lock and proposes so many blocks, each when the
    /// last one is certified, with the votes of all liars. It stops when the honest replicas do not follow.
    pub(crate) fn lead(&mut self, view: View, lock: Lock, to: &[u16], blocks: u64) -> Result<(), Failure> {
        let (leader, base) = (self.leader(view), (lock.tip.statement.height, lock.tip.block()));
        self.send(leader.0, to, &SyncMessage::NewView { view, lock });
        self.lead_on(view, base, to, blocks)
    }

    fn lead_on(&mut self, view: View, base: End, to: &[u16], blocks: u64) -> Result<(), Failure> {
        self.liars_send(to, &SyncMessage::FirstVote { view, height: base.0, base: base.1 });
        let mut end = base;
        for number in 1..=blocks {
            if !self.certified(view, end)? {
                break;
            }
            if number > 1 {
                self.run(ms(100))?;
            }
            let header = self.header(view, end, base.1, number);
            self.propose(to, &header);
            self.liars_vote(to, &header);
            end = (header.block.height, header.block.id());
        }
        Ok(())
    }

    /// Waits for an honest vote.
    fn certified(&mut self, view: View, end: End) -> Result<bool, Failure> {
        for _ in 0..500 {
            if !self.voters(view, end).is_empty() && self.certificate(view, end).is_some() {
                return Ok(true);
            }
            self.run(ms(5))?;
        }
        Ok(false)
    }

    /// Ends the plan: liars send nothing any more, and the others continue and agree.
    pub(crate) fn close(&mut self) -> Result<(), Failure> {
        self.paths.borrow_mut().clear();
        self.world.submit(0, &[incr("n")]);
        let is_busy = |world: &World| !(world.all_done() && world.is_level());
        self.world.run_while("the honest replicas continue", ms(20_000), is_busy)?;
        self.world.read_back()?;
        self.world.run_while("the honest replicas are at one height", ms(20_000), is_busy)?;
        self.world.check_settled()
    }
}

fn delay(paths: &[Path], frame: &Frame, near_ns: u64) -> Verdict {
    let is_it = |(from, to, kind, _): &&Path| {
        (*from, *to) == (frame.from, frame.to) && kind.is_none_or(|kind| kind == frame.content.kind)
    };
    match paths.iter().rfind(is_it) {
        Some((.., span_ns)) if *span_ns > near_ns => Verdict::Delay(span_ns - near_ns),
        _ => Verdict::Pass,
    }
}
