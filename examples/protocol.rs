//! A protocol of one's own, in its smallest form: the leader sings first, and the others sing along.
//!
//! There is one message. The leader votes for a block that it has made. A replica that receives this vote, and has all of
//! the block, votes for it too. A quorum of equal votes decides. The protocol needs n ≥ 3f + 1.
//!
//! * Up to f replicas may behave arbitrarily, the leader among them. No two blocks are decided at one height, because two
//!   quorums share an honest replica, which votes once for each height.
//! * It does **not** survive a leader that stops or lies: no replica takes its place, so no block is decided any more.
//! * It does not repeat messages on its own, so it needs links that report every loss. The links of this project do;
//!   datagrams do not.
//!
//! `cargo run --release -p quorate-protocols --example protocol` runs it through some simulated disasters.
//! `docs/adding-a-protocol.md` describes how it would become a part of `quorate`, and walks through a larger protocol.

use quorate_consensus::parts::tally::{Tallied, Tally};
use quorate_consensus::{
    Auth, CheckpointProof, Commit, Cx, Entry, Examined, Healed, LinkEvent, Message, MessageRole, Model,
    OpenError, Past, Place, Protocol, Ready, Record, RecordKey, Reject, Spec, Status, To, Verified, Window,
};
use quorate_sim::{BadSettings, Report, Transport, seed};
use quorate_types::{
    Block, BlockId, Committee, DecodeError, Digest, Floors, Height, Kind, PayloadId, ProtocolId, Reader,
    ReplicaId, Statement, Time, View, Wire, quorum,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const LEADER: ReplicaId = ReplicaId(0);
const VOTE: Kind = Kind::new("vote");

/// The sender votes for this block at its height, and for no other, for ever.
#[derive(Clone, Debug)]
struct Vote(Block);

// Answers to the host's questions before the protocol handles a message. The statement binds the sender: the host fills the
// slot (vote, view 0, height) once in a replica's life, whatever the code below asks for.
impl Message for Vote {
    fn kind(&self) -> Kind {
        VOTE
    }
    fn place(&self) -> Place {
        Place { view: View::ZERO, height: self.0.height, certified: false }
    }
    fn auth(&self) -> Auth {
        Auth::Linked(Some(Statement::new(VOTE, View::ZERO, self.0.height, self.0.id().0)))
    }
    fn bodies(&self, out: &mut Vec<PayloadId>) {
        out.push(self.0.payload);
    }
}

impl Wire for Vote {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Block::decode(reader).map(Self)
    }
}

// An own vote must survive a crash, or the replica could never send a message of that height again.
impl Record for Vote {
    fn key(&self) -> RecordKey {
        RecordKey { kind: 1, height: self.0.height, scope: Digest::ZERO }
    }
}

/// No parameters.
#[derive(Default, Serialize, Deserialize)]
struct Params {}

/// State of one height.
#[derive(Default)]
struct Progress {
    mine: Option<Vote>,
    votes: Tally<BlockId>,
    is_decided: bool,
}

struct Chorus {
    /// Heights above the stable checkpoint that may be in use.
    window: u64,
    /// The last stable checkpoint: all heights up to it are settled and forgotten.
    stable: Height,
    /// The last height of the gap-free run of decided heights.
    decided: Height,
    /// Heights above `stable`, never more than the window.
    heights: BTreeMap<Height, Progress>,
}

impl Protocol for Chorus {
    const SPEC: Spec = Spec {
        name: ProtocolId::new("chorus"),
        summary: "one message, fixed leader; an example: a silent leader stops it",
        model: Model::Teaching,
        faults: quorum::byzantine_faults,
        checkpoint_quorum: quorum::byzantine,
        replies: |_, f| quorum::weak(f),
        votes_are_durable: true,
        votes_are_signed: false,
        local_validity: false,
        replaces_leader: false,
        rotates_leaders: false,
        first_view: View::ZERO,
        shared_params: &[],
        repeatable: &[],
        roles: &[(VOTE, MessageRole::Vote)],
    };
    type Message = Vote;
    type Record = Vote;
    type Timer = ();
    type Params = Params;

    fn open(cx: &mut Cx<'_, Self>, _: Params, past: Past<Vote>) -> Result<Self, OpenError> {
        if cx.committee().f > quorum::byzantine_faults(cx.committee().n()) {
            return Err(OpenError::Committee("chorus needs n >= 3f + 1".to_owned()));
        }
        let stable = past.checkpoint.checkpoint.height;
        let decided = stable.max(past.executed);
        let mut chorus = Self { window: past.window, stable, decided, heights: BTreeMap::new() };
        for (height, _) in past.decided.into_iter().filter(|(height, _)| *height > stable) {
            chorus.heights.entry(height).or_default().is_decided = true;
        }
        // The same votes as before the crash. Peers notice the gap of the link and send theirs.
        for vote in past.records {
            chorus.heights.entry(vote.0.height).or_default().mine = Some(vote.clone());
            cx.send(To::All, vote);
        }
        chorus.advance();
        Ok(chorus)
    }

    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<Vote>) -> Result<(), Reject> {
        // The own vote arrives here too, once it is durable, and counts from then on.
        let (Vote(block), seal) = message.into_parts();
        self.check(&block)?;
        let (id, height) = (block.id(), block.height);
        let progress = self.heights.entry(height).or_default();
        let votes = match progress.votes.add(id, seal.by) {
            Tallied::Counted(votes) => votes,
            Tallied::Again => return Ok(()), // After a restart or a gap.
            Tallied::Conflict(_) => return Err(Reject::Equivocation),
        };
        let decides = votes >= cx.committee().quorum() && !progress.is_decided;
        if decides {
            progress.is_decided = true;
            cx.commit(Commit::At(height, id));
        }
        if decides || seal.by == LEADER {
            cx.blocks().insert(block);
            match cx.ready(id) {
                Some(how) => self.on_ready(cx, id, how),
                None => cx.want(id, seal.by), // `on_ready` answers.
            }
        }
        self.advance();
        self.lead(cx);
        Ok(())
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, id: BlockId, how: Ready) {
        let Some(block) = cx.blocks().get(id).map(|block| Block::clone(block)) else { return };
        let Some(progress) = self.heights.get(&block.height) else { return };
        let leader_voted_for_it = progress.votes.of(LEADER) == Some(id);
        if how == Ready::Valid && leader_voted_for_it && progress.mine.is_none() {
            self.vote(cx, block);
        }
    }

    // Clients wait, or the host has executed a height and accepts the next block.
    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        self.lead(cx);
    }
    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, _height: Height, _fresh: u32) {
        self.lead(cx);
    }

    // f + 1 peers report the decision: a replica that was away for long learns of it this way.
    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, _block: BlockId) {
        if height > self.stable {
            self.heights.entry(height).or_default().is_decided = true;
            self.advance();
            self.lead(cx);
        }
    }

    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, proof: &CheckpointProof) {
        self.stable = self.stable.max(proof.checkpoint.height);
        self.heights = self.heights.split_off(&self.stable.next());
        self.advance();
        self.lead(cx);
    }

    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, what: LinkEvent) {
        if what == LinkEvent::Gap {
            let mine = self.heights.values().filter_map(|progress| progress.mine.clone());
            mine.for_each(|vote| cx.send(To::One(peer), vote));
        }
    }

    fn on_timer(&mut self, _: &mut Cx<'_, Self>, (): ()) {}

    fn window(&self) -> Window {
        let heights = self.stable.next()..self.stable.plus(self.window).next();
        Window { views: View::ZERO..View(1), heights }
    }
    fn floors(&self) -> Floors {
        Floors { height: self.stable.next(), views: Vec::new() }
    }
    fn status(&self) -> Status {
        Status { leader: LEADER, normal: true, committed: self.decided, ..Status::default() }
    }
}

impl Examined for Chorus {
    fn recovery(_: &Params, _: &Committee, healed: &Healed) -> Time {
        let trips = healed.delta_ns.saturating_mul(12);
        Time(trips.saturating_add(healed.client_retry_ns).saturating_add(healed.fetch_ns))
    }

    fn exam_params(_delta_ns: u64, _guarded: bool) -> Params {
        Params {}
    }
}

impl Chorus {
    /// Makes the next block, as the leader, once the one before is decided.
    fn lead(&mut self, cx: &mut Cx<'_, Self>) {
        let height = self.decided.next();
        let is_free = self.heights.get(&height).is_none_or(|progress| progress.mine.is_none());
        if cx.me() != LEADER || !is_free || height.since(self.stable) > self.window {
            return;
        }
        let Some(payload) = cx.payload_after(BlockId::ZERO) else { return };
        let block = Block {
            parent: BlockId::ZERO,
            height,
            view: View::ZERO,
            proposer: LEADER,
            time_ns: payload.time_ns,
            payload: payload.id,
            extra: Digest::ZERO,
        };
        cx.blocks().insert(block.clone());
        self.vote(cx, block);
    }

    // The record precedes the vote: messages sent after it are held until it is durable.
    fn vote(&mut self, cx: &mut Cx<'_, Self>, block: Block) {
        let vote = Vote(block);
        self.heights.entry(vote.0.height).or_default().mine = Some(vote.clone());
        cx.record(&vote);
        cx.send(To::All, vote);
    }

    fn check(&self, block: &Block) -> Result<(), Reject> {
        let fits = block.parent == BlockId::ZERO && block.view == View::ZERO && block.extra.is_zero();
        match block.height {
            height if height <= self.stable => Err(Reject::Stale),
            height if height.since(self.stable) > self.window => Err(Reject::Early),
            _ if !fits || block.proposer != LEADER => Err(Reject::Invalid("block")),
            _ => Ok(()),
        }
    }

    fn advance(&mut self) {
        self.decided = self.decided.max(self.stable);
        while self.heights.get(&self.decided.next()).is_some_and(|progress| progress.is_decided) {
            self.decided = self.decided.next();
        }
    }
}

const CHORUS: Entry = Entry::of::<Chorus>();

/// Returns the standard runs of some seeds, as far as links join their replicas.
fn reports(seeds: u64) -> Result<Vec<Report>, BadSettings> {
    let mut reports = Vec::new();
    for number in 0..seeds {
        let mut run = seed::StandardRun::new(&CHORUS, None, number)?;
        if run.world().settings().transport == Transport::Links {
            reports.push(run.run());
        }
    }
    Ok(reports)
}

fn main() -> Result<(), BadSettings> {
    for report in reports(20)? {
        println!("{report}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_consensus::harness::{Harness, Setup, payload};
    use quorate_sim::{Op, Settings, Survives, World, secs};

    fn vote(number: u64) -> Vote {
        Vote(Block {
            parent: BlockId::ZERO,
            height: Height(1),
            view: View::ZERO,
            proposer: LEADER,
            time_ns: number,
            payload: payload(number).id,
            extra: Digest::ZERO,
        })
    }

    /// One vote for each height makes a lying leader harmless.
    #[test]
    fn quorum_of_equal_votes_decides_and_a_second_vote_is_refused() {
        let setup = Setup::of::<Chorus>(4);
        let mut replica = Harness::<Chorus>::open(ReplicaId(1), setup, &Params {}).unwrap();
        replica.deliver(LEADER, vote(7)).unwrap();
        assert_eq!(replica.deliver(LEADER, vote(8)), Err(Reject::Equivocation));
        replica.sync();
        // The own vote and the leader's are two; the third replica has received another block.
        replica.deliver(ReplicaId(2), vote(8)).unwrap();
        assert_eq!(replica.committed(), []);
        replica.deliver(ReplicaId(3), vote(7)).unwrap();
        assert_eq!(replica.committed(), [Commit::At(Height(1), vote(7).0.id())]);
        let stranger = Vote(Block { proposer: ReplicaId(2), ..vote(7).0 });
        assert_eq!(replica.deliver(ReplicaId(2), stranger), Err(Reject::Invalid("block")));
    }

    /// Delays, partitions, crashes, power cuts: the oracles find no failure, and the cluster is live after the heal.
    #[test]
    fn cluster_survives_simulated_disasters() {
        let reports = reports(40).unwrap();
        assert!(reports.len() > 10, "{}", reports.len());
        for report in reports {
            assert_eq!(report.failure, None, "{report}");
        }
    }

    #[test]
    fn cluster_waits_for_a_crashed_leader() {
        let mut world = World::new(Settings::new(&CHORUS, 1)).unwrap();
        world.run_for(secs(1)).unwrap();
        let before = world.height();
        world.crash(LEADER, Survives::Nothing);
        world.submit(0, &[Op::Increment { key: "n".to_owned(), by: 1 }]);
        world.run_for(secs(30)).unwrap();
        assert_eq!(world.height(), before, "no replica takes the leader's place");
        world.start(LEADER).unwrap();
        world.run_while("the request is answered", secs(20), |world| !world.all_done()).unwrap();
        assert!(world.height() > before);
    }
}
