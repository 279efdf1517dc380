//! Property tests: frames arrive once and in order, and every gap is reported, under random cuts, disconnects, restarts and
//! overflow.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

#[derive(Clone, Debug)]
enum Step {
    Send { from: usize, lane: usize, bytes: usize },
    Carry { from: usize, bytes: usize },
    Cut,
    Restart(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..2usize, 0..3usize, 0..60usize).prop_map(|(from, lane, bytes)| Step::Send { from, lane, bytes }),
        8 => (0..2usize, 1..400usize).prop_map(|(from, bytes)| Step::Carry { from, bytes }),
        1 => Just(Step::Cut),
        1 => (0..2usize).prop_map(Step::Restart),
        2 => (0..40_000_000u64).prop_map(Step::Wait),
    ]
}

/// One end: its link, the frames that it sent in this incarnation, and the next number that it expects from the other end.
struct End {
    link: Link,
    incarnation: u64,
    sent: [u64; 3],
    expected: [u64; 3],
    lost_in: BTreeSet<(usize, u64)>,
    lost_out: BTreeSet<(usize, u64)>,
    wire: VecDeque<u8>,
}

const LIMITS: ResendLimits = ResendLimits { bytes: 900, frames: 12 };

impl End {
    fn new(me: u16, incarnation: u64) -> Self {
        Self {
            link: Link::new(identity(me, incarnation), ReplicaId(1 - me), LIMITS),
            incarnation,
            sent: [0; 3],
            expected: [0; 3],
            lost_in: BTreeSet::new(),
            lost_out: BTreeSet::new(),
            wire: VecDeque::new(),
        }
    }

    fn send(&mut self, lane: usize, bytes: usize) {
        let mut body = self.incarnation.to_le_bytes().to_vec();
        body.extend_from_slice(&self.sent[lane].to_le_bytes());
        body.resize(16 + bytes, 0xee);
        self.link.send(Lane::ALL[lane], kind::PROTOCOL, body.into()).unwrap();
        self.sent[lane] += 1;
    }

    fn note(&mut self, seen: Seen, other_incarnation: u64) {
        match seen {
            Seen::Up | Seen::Closed(_) => {}
            Seen::Frame(lane, _, body) => {
                let lane = usize::from(lane.tag());
                let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
                assert_eq!(number(0), other_incarnation, "a frame of an old incarnation");
                assert_eq!(
                    number(8),
                    self.expected[lane],
                    "lane {lane}: wrong order, a duplicate, or a silent gap"
                );
                self.expected[lane] += 1;
            }
            Seen::Lost(loss) => {
                let lane = usize::from(loss.lane.tag());
                assert!(loss.from < loss.to);
                match loss.direction {
                    Direction::Outgoing => self.lost_out.extend((loss.from..loss.to).map(|n| (lane, n))),
                    Direction::Incoming => {
                        assert_eq!(loss.from, self.expected[lane]);
                        if loss.to == u64::MAX {
                            self.expected[lane] = 0;
                        } else {
                            self.lost_in.extend((loss.from..loss.to).map(|n| (lane, n)));
                            self.expected[lane] = loss.to;
                        }
                    }
                }
            }
        }
    }

    fn read(&mut self, now: Time, bytes: &[u8], other_incarnation: u64) {
        let mut events = Vec::new();
        let end = self.link.read(now, bytes, &mut |event| events.push(seen(event)));
        assert_eq!(end, Ok(()), "two honest ends never refuse each other");
        self.link.losses(&mut |event| events.push(seen(event)));
        for event in events {
            self.note(event, other_incarnation);
        }
    }
}

struct Pair {
    ends: [End; 2],
    now: Time,
    connected: bool,
}

impl Pair {
    fn carry(&mut self, from: usize, bytes: usize) {
        if !self.connected {
            self.connected = true;
            // The higher id dials; its connection replaces one that the other end still considers up.
            self.ends[1].link.connect(self.now);
            self.ends[0].link.accept(self.now);
        }
        let [zero, one] = &mut self.ends;
        let (from, to) = if from == 0 { (zero, one) } else { (one, zero) };
        from.link.transmit(bytes, &mut |slices| {
            slices.iter().for_each(|slice| from.wire.extend(slice.iter()));
        });
        let count = bytes.min(from.wire.len());
        let chunk: Vec<u8> = from.wire.drain(..count).collect();
        to.read(self.now, &chunk, from.incarnation);
        let incarnation = to.incarnation;
        from.read(self.now, &[], incarnation);
    }

    fn cut(&mut self) {
        self.connected = false;
        for end in &mut self.ends {
            end.wire.clear();
            end.link.disconnect();
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Send { from, lane, bytes } => self.ends[from].send(lane, bytes),
            Step::Carry { from, bytes } => self.carry(from, bytes),
            Step::Cut => self.cut(),
            Step::Restart(which) => {
                self.cut();
                let incarnation = self.ends[which].incarnation + 1;
                self.ends[which] = End::new(which as u16, incarnation);
            }
            Step::Wait(nanos) => {
                self.now = self.now.plus(nanos);
                for end in &mut self.ends {
                    end.link.tick(self.now).unwrap();
                }
            }
        }
    }

    /// Carries bytes until none is left; then every sent frame must have arrived or be reported lost.
    fn settle(&mut self) {
        self.cut();
        // One frame on every lane shows the end of every gap.
        for end in &mut self.ends {
            (0..3).for_each(|lane| end.send(lane, 0));
        }
        for _ in 0..40 {
            self.carry(1, 10_000);
            self.carry(0, 10_000);
            self.run(&Step::Wait(ACK_DELAY_NS));
        }
        for (me, other) in [(0, 1), (1, 0)] {
            assert_eq!(
                self.ends[me].expected, self.ends[other].sent,
                "every sent frame has arrived or is reported lost"
            );
            assert_eq!(self.ends[me].link.backlog(), (0, 0), "every frame is acknowledged");
            assert_eq!(self.ends[me].link.deadline(), None, "a settled link has no deadline");
        }
    }
}

fn run(steps: &[Step]) -> Pair {
    let mut pair = Pair { ends: [End::new(0, 1), End::new(1, 1)], now: NOW, connected: false };
    for step in steps {
        pair.run(step);
    }
    pair.settle();
    pair
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn frames_arrive_once_and_in_order_or_are_reported_lost(steps in proptest::collection::vec(step(), 0..200)) {
        let pair = run(&steps);
        let restarted = steps.iter().any(|step| matches!(step, Step::Restart(_)));
        if !restarted {
            let [zero, one] = &pair.ends;
            prop_assert_eq!(&zero.lost_in, &one.lost_out, "both sides report the same frames");
            prop_assert_eq!(&one.lost_in, &zero.lost_out);
        }
    }

    #[test]
    fn hostile_bytes_cause_no_panic(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20),
        up in any::<bool>(),
    ) {
        let (mut a, mut b) = (link(1, 0), link(0, 1));
        if up {
            connect(&mut a, &mut b);
        } else {
            b.accept(NOW);
        }
        let mut greeter = Greeter::default();
        let total: usize = chunks.iter().map(Vec::len).sum();
        for chunk in &chunks {
            let _ = greeter.read(chunk);
            if b.read(NOW, chunk, &mut |_| ()).is_err() {
                break;
            }
            prop_assert!(b.assembler.unfinished() <= total);
        }
    }

    #[test]
    fn damaged_streams_cause_no_panic(
        flips in proptest::collection::vec((0..2_000usize, 1..=255u8), 1..6),
        cut in 1..300usize,
    ) {
        let (mut a, mut b) = (link(1, 0), link(0, 1));
        connect(&mut a, &mut b);
        for lane in Lane::ALL.into_iter().cycle().take(30) {
            a.send(lane, kind::HOST, vec![5; 40].into()).unwrap();
        }
        let mut stream = Vec::new();
        a.write(&mut stream);
        for (at, with) in flips {
            let at = at % stream.len();
            stream[at] ^= with;
        }
        let mut frames = 0;
        for chunk in stream.chunks(cut) {
            let read = b.read(NOW, chunk, &mut |event| frames += usize::from(matches!(event, LinkEvent::Frame { .. })));
            if read.is_err() {
                break;
            }
        }
        prop_assert!(frames <= 60);
    }
}
