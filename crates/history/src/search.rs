//! The linearizability search for one order of all calls that a sequential object explains.
//!
//! The algorithm is that of Wing and Gong, with Lowe's cache of visited configurations.
//!
//! * A call takes effect at one moment between its call and its answer.
//! * A call without an answer takes effect at any time after its call, or never.
//! * Two calls of different clients whose times touch (one's answer and the other's call at one moment) overlap.
//! * Two calls of one client whose times touch are in order: the client made the second with the answer to the first.
//!
//! [`search`] looks for an order of all answered calls that respects these rules and in which the object gives the
//! answers that were seen. A configuration is the set of calls done and the state after them; none is tried twice. The
//! search knows no service: a [`Sequential`] is one, and [`judge`](crate::judge) is for the key-value store.
//!
//! Three rules shorten the search without losing an order:
//!
//! * A call that fits and never changes the state is done at once.
//! * A call that does not fit, and that no remaining call can make fit, is a dead end.
//! * A call without an answer is done only where it makes a difference to the next call.
//!
//! The problem is NP-hard, so the search has a budget, and reports when the budget is used up.

use quorate_types::Time;
use std::collections::BTreeSet;

/// The number of configurations after which a search for one object stops undecided: some seconds of work.
pub const BUDGET: u64 = 4_000_000;
/// The number of calls that a report shows before the end of the longest explanation.
const SHOWN: usize = 4;

/// A sequential object.
pub trait Sequential {
    /// The state of the object.
    type State: Clone + Ord;
    /// A call with its answer, as far as the answer is known.
    type Call;
    /// Returns the state after a call; `None` when the object would give another answer.
    fn step(&self, state: &Self::State, call: &Self::Call) -> Option<Self::State>;
    /// Returns the effect of a call that does not depend on the state before it.
    fn leaves(&self, call: &Self::Call) -> Leaves<Self::State>;
}

/// The state after a call, as far as the call alone decides it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leaves<S> {
    /// The state before the call.
    Same,
    /// This state.
    This(S),
    /// A state that depends on the one before.
    Anything,
}

/// A call and the time in which it takes effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span<C> {
    /// The client that called.
    pub client: usize,
    /// Time of the call.
    pub call: Time,
    /// Time of the answer; `None`: there is none, and the call may never take effect.
    pub answered: Option<Time>,
    /// The call with its answer.
    pub operation: C,
}

impl<C> Span<C> {
    /// Whether this call precedes another of the same client although their times touch. Two calls that both begin and
    /// end at one moment have no known order.
    fn touches(&self, next: &Self) -> bool {
        self.client == next.client
            && self.answered == Some(next.call)
            && next.answered.is_none_or(|end| end > self.call)
    }
}

/// The result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judgement<S> {
    /// An order exists.
    Ok,
    /// No order exists.
    Illegal(Stuck<S>),
    /// The budget is used up.
    Undecided,
}

/// The longest explanation that any order gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stuck<S> {
    /// Number of answered calls that it explains.
    pub explained: usize,
    /// The last of them, by place in the input.
    pub before: Vec<usize>,
    /// The state after them.
    pub state: S,
    /// Calls of which one has to come next; none leads further.
    pub next: Vec<usize>,
}

/// The calls that are done. Answered calls are numbered in the order of their calls; then come the others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct DoneCalls {
    /// All answered calls before this one.
    all_before: usize,
    /// Further ones, in order. Few: those that overlap.
    beyond: Vec<usize>,
}

impl DoneCalls {
    fn contains(&self, call: usize) -> bool {
        call < self.all_before || self.beyond.binary_search(&call).is_ok()
    }

    /// Adds a call; `answered` is the number of answered calls.
    fn with(&self, call: usize, answered: usize) -> Self {
        let mut beyond = self.beyond.clone();
        if let Err(at) = beyond.binary_search(&call) {
            beyond.insert(at, call);
        }
        let runs = (self.all_before..answered).zip(&beyond).take_while(|(a, b)| a == *b).count();
        beyond.drain(..runs);
        Self { all_before: self.all_before.saturating_add(runs), beyond }
    }
}

/// The end of a partial order, and the calls to be tried next.
struct SearchPlace<S> {
    done: DoneCalls,
    state: S,
    /// The call that led here.
    last: Option<usize>,
    /// The state before that call, if the call need not have happened.
    without: Option<S>,
    candidates: Vec<usize>,
    tried: usize,
}

/// A call with its number in the search.
struct NumberedCall<'a, O: Sequential> {
    /// Its place in the input.
    at: usize,
    span: &'a Span<O::Call>,
    leaves: Leaves<O::State>,
}

/// A search among numbered calls.
struct Search<'a, O: Sequential> {
    object: &'a O,
    /// Answered ones in the order of their calls, then the others.
    calls: Vec<NumberedCall<'a, O>>,
    answered: usize,
}

impl<'a, O: Sequential> Search<'a, O> {
    fn new(object: &'a O, spans: &'a [Span<O::Call>]) -> Self {
        let numbered = |(at, span): (usize, &'a Span<O::Call>)| NumberedCall {
            at,
            span,
            leaves: object.leaves(&span.operation),
        };
        let mut calls: Vec<NumberedCall<'a, O>> = spans.iter().enumerate().map(numbered).collect();
        calls.sort_by_key(|numbered| (numbered.span.answered.is_none(), numbered.span.call, numbered.at));
        let answered = calls.partition_point(|numbered| numbered.span.answered.is_some());
        Self { object, calls, answered }
    }

    fn step(&self, state: &O::State, call: usize) -> Option<O::State> {
        self.calls.get(call).and_then(|numbered| self.object.step(state, &numbered.span.operation))
    }

    /// Returns the calls that may come next: every call that was answered before their call is done.
    fn candidates(&self, done: &DoneCalls, state: &O::State) -> Vec<usize> {
        let mut candidates = Vec::new();
        let mut until = Time::MAX;
        for (call, numbered) in self.calls.iter().enumerate().take(self.answered).skip(done.all_before) {
            if numbered.span.call > until {
                break;
            }
            if !done.contains(call) {
                until = until.min(numbered.span.answered.unwrap_or(Time::MAX));
                candidates.push(call);
            }
        }
        let first: Vec<&Span<O::Call>> = candidates
            .iter()
            .filter_map(|call| self.calls.get(*call).map(|numbered| numbered.span))
            .filter(|span| span.answered == Some(until))
            .collect();
        let in_time = |call: &usize| {
            self.calls.get(*call).is_some_and(|numbered| {
                numbered.span.call < until
                    || numbered.span.call == until && !first.iter().any(|span| span.touches(numbered.span))
            })
        };
        candidates.retain(in_time);
        // A call that fits and never changes the state comes first, and no other call need be tried.
        let is_harmless = |call: usize| {
            self.calls.get(call).is_some_and(|numbered| numbered.leaves == Leaves::Same)
                && self.step(state, call).is_some()
        };
        if let Some(call) = candidates.iter().find(|call| is_harmless(**call)) {
            return vec![*call];
        }
        let open = self.answered..self.calls.len();
        candidates.extend(open.filter(|call| !done.contains(*call) && in_time(call)));
        candidates
    }

    /// Whether a call fits neither here nor after any call that may still come before it.
    fn is_hopeless(&self, done: &DoneCalls, state: &O::State, call: usize) -> bool {
        let Some(NumberedCall { span, .. }) = self.calls.get(call) else { return false };
        if span.answered.is_none() || self.step(state, call).is_some() {
            return false;
        }
        let end = span.answered.unwrap_or(Time::MAX);
        let helps = |other: usize, numbered: &NumberedCall<'_, O>| {
            let fits = || match &numbered.leaves {
                Leaves::Same => false,
                Leaves::This(state) => self.step(state, call).is_some(),
                Leaves::Anything => true,
            };
            other != call && numbered.span.call <= end && !done.contains(other) && fits()
        };
        let calls = self.calls.iter().enumerate();
        let answered = calls.clone().take(self.answered).skip(done.all_before);
        let mut answered = answered.take_while(|(_, numbered)| numbered.span.call <= end);
        let mut open = calls.skip(self.answered);
        !answered.any(|(other, numbered)| helps(other, numbered))
            && !open.any(|(other, numbered)| helps(other, numbered))
    }

    fn place(
        &self,
        done: DoneCalls,
        state: O::State,
        last: Option<usize>,
        without: Option<O::State>,
    ) -> SearchPlace<O::State> {
        let candidates = self.candidates(&done, &state);
        // A call that can never be done from here makes a dead end.
        let is_dead_end = candidates.iter().any(|call| self.is_hopeless(&done, &state, *call));
        let tried = if is_dead_end { candidates.len() } else { 0 };
        SearchPlace { done, state, last, without, candidates, tried }
    }

    fn given(&self, calls: impl Iterator<Item = usize>) -> Vec<usize> {
        calls.filter_map(|call| self.calls.get(call).map(|numbered| numbered.at)).collect()
    }

    fn stuck(
        &self,
        explained: usize,
        path: &[SearchPlace<O::State>],
        here: &SearchPlace<O::State>,
    ) -> Stuck<O::State> {
        let from = path.len().saturating_sub(SHOWN.saturating_sub(1));
        let before = path.get(from..).unwrap_or_default().iter().chain([here]).filter_map(|place| place.last);
        Stuck {
            explained,
            before: self.given(before),
            state: here.state.clone(),
            next: self.given(here.candidates.iter().copied()),
        }
    }

    fn run(&self, begin: O::State, budget: u64) -> Judgement<O::State> {
        let mut tried: BTreeSet<(DoneCalls, O::State, Option<O::State>)> = BTreeSet::new();
        let mut path: Vec<SearchPlace<O::State>> = Vec::new();
        let mut here = self.place(DoneCalls::default(), begin, None, None);
        let mut furthest = self.stuck(0, &path, &here);
        let mut left = budget;
        loop {
            if here.done.all_before == self.answered {
                return Judgement::Ok;
            }
            let Some(call) = here.candidates.get(here.tried).copied() else {
                match path.pop() {
                    Some(before) => here = before,
                    None => return Judgement::Illegal(furthest),
                }
                continue;
            };
            here.tried = here.tried.saturating_add(1);
            let Some(next) = left.checked_sub(1) else { return Judgement::Undecided };
            left = next;
            let Some(state) = self.step(&here.state, call) else { continue };
            // The previous call need not have happened, and makes no difference to this one.
            if here.without.as_ref().and_then(|without| self.step(without, call)).as_ref() == Some(&state) {
                continue;
            }
            let without = (call >= self.answered).then(|| here.state.clone());
            let done = here.done.with(call, self.answered);
            if !tried.insert((done.clone(), state.clone(), without.clone())) {
                continue;
            }
            let there = self.place(done, state, Some(call), without);
            path.push(std::mem::replace(&mut here, there));
            let explained = self.explained(&here.done);
            if explained > furthest.explained {
                furthest = self.stuck(explained, &path, &here);
            }
        }
    }

    fn explained(&self, done: &DoneCalls) -> usize {
        let beyond = done.beyond.iter().filter(|call| **call < self.answered).count();
        done.all_before.saturating_add(beyond)
    }
}

/// Searches for an order of calls of an object whose first state is `begin`. `budget` limits the configurations.
pub fn search<O: Sequential>(
    object: &O,
    begin: O::State,
    spans: &[Span<O::Call>],
    budget: u64,
) -> Judgement<O::State> {
    Search::new(object, spans).run(begin, budget)
}
