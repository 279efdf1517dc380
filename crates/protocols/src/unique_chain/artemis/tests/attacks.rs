//! Messages of a Byzantine replica under the attacks of the table.

use super::super::attacks::ATTACKS;
use super::*;
use quorate_consensus::{Claims, Message as _, Scene};
use quorate_types::rng::Rng;
use std::any::Any;

/// Plays an attack of replica 0 on these messages, each sent to replicas 1 to 4. Returns the messages by receiver.
fn play(name: &str, said: &[Message]) -> Vec<(u16, Message)> {
    let committee = Setup::of::<UniqueChain<Artemis>>(usize::from(N)).committee::<UniqueChain<Artemis>>();
    let mut attack = (ATTACKS.iter().find(|attack| attack.name == name).unwrap().make)();
    let mut rng = Rng::new(7);
    let mut all = Vec::new();
    for message in said {
        for to in 1..N {
            let sign = |_: &quorate_types::Statement| SIGNATURE;
            let mut scene = Scene { me: r(0), committee: &committee, rng: &mut rng, sign: &sign };
            for made in attack.says(&mut scene, r(to), Box::new(message.clone())) {
                let any: Box<dyn Any> = made;
                all.push((to, *any.downcast::<Message>().unwrap()));
            }
        }
    }
    for (_, message) in &all {
        let mut claims = Claims::new(&committee, 3);
        message.claims(&mut claims);
        assert!(claims.finish().is_ok(), "{name}: {message:?}");
    }
    all
}

/// Returns blocks and votes of replica 0, with relays of the votes of others.
fn honest() -> Vec<Message> {
    let blocks = stream(FIRST, ROOT, 6);
    let first = data(1, genesis(), &blocks[1]);
    let mut votes = vec![first.clone()];
    votes.extend(again(2, first.place(), id(&blocks[1]), &VoteKind::Endorse, 4));
    let last = data(6, votes[4].place(), &blocks[5]);
    let mut said: Vec<Message> = blocks.iter().map(sends).collect();
    said.push(casts(&first));
    said.extend(votes[1..].iter().map(|vote| relay(vote.round.0 + 1, Some(vote))));
    said.push(casts(&last));
    said
}

#[test]
fn every_attack_changes_what_its_replica_sends() {
    let mut said = honest();
    let blocks = stream(FIRST, ROOT, 2);
    said.push(hands_on(&blocks));
    said.push(stands(RecoveryStage::Voting));
    let plain: Vec<(u16, Message)> =
        said.iter().flat_map(|message| (1..N).map(|to| (to, message.clone()))).collect();
    for attack in ATTACKS {
        assert!(play(attack.name, &said) != plain, "{}", attack.name);
    }
}

fn voted(all: &[(u16, Message)], round: u64) -> Vec<Vote> {
    let said: Vec<(To, Message)> =
        all.iter().map(|(to, message)| (To::One(r(*to)), message.clone())).collect();
    let mut votes = votes_in(&said);
    votes.retain(|vote| vote.round == View(round));
    votes
}

#[test]
fn equivocating_voter_signs_votes_of_several_kinds() {
    let votes = voted(&play("equivocate", &[honest(), honest()].concat()), 6);
    let kinds = [VoteKind::Data, VoteKind::Endorse, VoteKind::NoProgress];
    assert!(
        kinds.iter().filter(|kind| votes.iter().any(|vote| vote.kind == **kind)).count() >= 2,
        "{votes:?}"
    );
    assert!(votes.iter().all(|vote| vote.voter == r(0)));
}

#[test]
fn false_flags_name_the_head() {
    let all = play("false flags", &honest());
    let head = id(&stream(FIRST, ROOT, 2)[1]);
    assert!(voted(&all, 6).iter().all(|vote| (vote.block, &vote.kind) == (head, &VoteKind::NoProgress)));
    assert!(voted(&all, 1).iter().all(|vote| vote.block == BlockId::ZERO));
    assert_eq!(voted(&all, 6).len(), 4);
}

/// The voter before sends its vote to the attacker, which relays it to nobody.
#[test]
fn false_flags_need_no_relay_of_the_parent() {
    let committee = Setup::of::<UniqueChain<Artemis>>(usize::from(N)).committee::<UniqueChain<Artemis>>();
    let mut attack = (ATTACKS.iter().find(|attack| attack.name == "false flags").unwrap().make)();
    let blocks = stream(FIRST, ROOT, 2);
    let parent = data(5, genesis(), &blocks[0]);
    let own = data(6, parent.place(), &blocks[1]);
    assert!(attack.listens());
    attack.hears(Box::new(casts(&parent)));
    let sign = |_: &quorate_types::Statement| SIGNATURE;
    let mut rng = Rng::new(7);
    let mut scene = Scene { me: r(0), committee: &committee, rng: &mut rng, sign: &sign };
    let said = attack.says(&mut scene, r(1), Box::new(casts(&own))).pop().unwrap();
    let said: Box<dyn Any> = said;
    let UniqueMessage::Entry { entry, .. } = *said.downcast::<Message>().unwrap() else { panic!("no vote") };
    assert_eq!((entry.block, entry.kind), (id(&blocks[0]), VoteKind::NoProgress));
}

#[test]
fn two_halves_receive_a_branch_each() {
    let all = play("two halves", &honest());
    let branch = |to: u16| -> Vec<CBlock> {
        let said: Vec<_> =
            all.iter().filter(|(of, _)| *of == to).map(|(_, it)| (To::One(r(to)), it.clone())).collect();
        blocks_in(&said)
    };
    let (even, odd) = (branch(2), branch(1));
    assert_eq!((even.len(), odd.len(), branch(4), branch(3)), (6, 6, even.clone(), odd.clone()));
    for (one, other) in even.iter().zip(&odd) {
        assert_eq!(one.statement().slot(), other.statement().slot());
        assert_ne!(id(one), id(other));
    }
    assert!(odd.windows(2).all(|pair| pair[1].block.parent == id(&pair[0])));
}
