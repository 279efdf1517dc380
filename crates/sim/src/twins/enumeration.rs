//! Numbered scenarios. Each number names one, so ranges of numbers can be distributed and resumed.

use super::partition::Partition;
use super::scenario::{BadScenario, Round, Scenario};
use super::symmetry::Symmetry;
use quorate_types::ReplicaId;
use quorate_types::rng::Rng;

/// The leaders of a scenario's views.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leaders {
    /// The protocol's own leaders.
    Own,
    /// One leader for each view, from the first one on.
    Set(Vec<ReplicaId>),
    /// Leaders drawn for each view of each scenario.
    Drawn,
}

/// Scenarios that are drawn instead of numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The number of scenarios.
    pub count: u64,
    /// The seed that draws them.
    pub seed: u64,
}

/// An enumeration of scenarios.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enumeration {
    n: usize,
    twins: Vec<ReplicaId>,
    views: usize,
    parts_max: usize,
    leaders: Leaders,
    sample: Option<Sample>,
    partitions: Vec<Partition>,
    /// The symmetry of all scenarios, where leaders are not drawn.
    symmetry: Option<Symmetry>,
}

impl Enumeration {
    /// Enumerates the scenarios with these twins, this number of views, and at most this number of parts: all of them, or
    /// a sample.
    ///
    /// # Errors
    /// Returns an error when there is no such scenario, or too many to be numbered.
    pub fn new(
        n: usize,
        twins: Vec<ReplicaId>,
        views: usize,
        parts_max: usize,
        leaders: Leaders,
        sample: Option<Sample>,
    ) -> Result<Self, BadScenario> {
        if leaders == Leaders::Drawn && sample.is_none() {
            return Err(BadScenario("leaders are drawn only where scenarios are".to_owned()));
        }
        if let Leaders::Set(set) = &leaders
            && set.len() != views
        {
            return Err(BadScenario(format!("{} leaders for {views} views", set.len())));
        }
        let mut made =
            Self { n, twins, views, parts_max, leaders, sample, partitions: Vec::new(), symmetry: None };
        made.partitions.push(Partition::together(made.nodes()));
        made.scenario(0).check()?;
        made.partitions = Partition::all(made.nodes(), parts_max);
        if made.sample.is_none() {
            made.count().ok_or_else(|| BadScenario("too many scenarios to be numbered".to_owned()))?;
        }
        if made.leaders != Leaders::Drawn {
            made.symmetry = Some(Symmetry::of(&made.scenario(0)));
        }
        Ok(made)
    }

    fn nodes(&self) -> usize {
        self.n.saturating_add(self.twins.len())
    }

    fn count(&self) -> Option<u64> {
        let partitions = u64::try_from(self.partitions.len()).ok()?;
        partitions.checked_pow(u32::try_from(self.views).ok()?)
    }

    /// Returns the number of scenarios, including those that are equal but for names.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self.sample {
            None => self.count().unwrap_or(u64::MAX),
            Some(sample) => sample.count,
        }
    }

    /// Whether there are no scenarios.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the partitions that a view may have.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// Whether scenarios are drawn. Then a search for equal ones does not pay.
    #[must_use]
    pub fn is_drawn(&self) -> bool {
        self.sample.is_some()
    }

    /// Returns the scenario of a number.
    #[must_use]
    pub fn scenario(&self, number: u64) -> Scenario {
        let mut rounds = match self.sample {
            None => self.numbered(number),
            Some(sample) => self.draw(sample.seed, number),
        };
        if let Leaders::Set(set) = &self.leaders {
            rounds.iter_mut().zip(set).for_each(|(round, leader)| round.leader = Some(*leader));
        }
        Scenario { n: self.n, twins: self.twins.clone(), rounds }
    }

    /// Returns the digits of the number, that of the first view first.
    fn numbered(&self, mut number: u64) -> Vec<Round> {
        let base = u64::try_from(self.partitions.len()).unwrap_or(u64::MAX).max(1);
        let mut rounds = Vec::with_capacity(self.views);
        for _ in 0..self.views {
            let digit = usize::try_from(number % base).unwrap_or_default();
            number /= base;
            rounds.push(Round { leader: None, partition: self.partition(digit) });
        }
        rounds.reverse();
        rounds
    }

    fn draw(&self, seed: u64, number: u64) -> Vec<Round> {
        let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.rotate_left(32));
        let mut round = || {
            let leader = match self.leaders {
                Leaders::Drawn => u16::try_from(rng.index(self.n)).ok().map(ReplicaId),
                Leaders::Own | Leaders::Set(_) => None,
            };
            Round { leader, partition: self.partition(rng.index(self.partitions.len())) }
        };
        (0..self.views).map(|_| round()).collect()
    }

    fn partition(&self, number: usize) -> Partition {
        self.partitions.get(number).copied().unwrap_or(Partition::together(self.nodes()))
    }

    /// Whether a scenario is the first of all that are equal but for names.
    #[must_use]
    pub fn is_first(&self, scenario: &Scenario) -> bool {
        match &self.symmetry {
            Some(symmetry) => symmetry.is_canonical(&scenario.rounds),
            None => Symmetry::of(scenario).is_canonical(&scenario.rounds),
        }
    }

    /// Returns the options of the command line that runs these scenarios.
    #[must_use]
    pub fn options(&self) -> String {
        match self.sample {
            None => self.name(),
            Some(sample) => format!("{} --sample {}", self.name(), sample.count),
        }
    }

    /// Returns the name of the numbering, for ledgers. It does not depend on the number of drawn scenarios.
    #[must_use]
    pub fn name(&self) -> String {
        let ids = |ids: &[ReplicaId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let leaders = match &self.leaders {
            Leaders::Own => "own".to_owned(),
            Leaders::Set(set) => ids(set),
            Leaders::Drawn => "drawn".to_owned(),
        };
        let seed = self.sample.map(|sample| format!(" --seed {}", sample.seed)).unwrap_or_default();
        let (n, views, parts) = (self.n, self.views, self.parts_max);
        let twins = ids(&self.twins);
        format!("--n {n} --twin {twins} --views {views} --parts {parts} --leaders {leaders}{seed}")
    }
}
