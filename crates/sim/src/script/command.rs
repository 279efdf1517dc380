//! The commands of scripts.

use super::expect::Expect;
use super::rules::{Rule, RuleAction};
use super::tokens::{self, Tokens, number, span};
use crate::Byzantine;
use crate::disk::Costs;
use crate::disk::Survives;
use crate::link_conditions::LinkConditions;
use crate::secs;
use crate::settings::{Settings, Transport};
use quorate_consensus::Entry;
use quorate_history::Op;
use quorate_types::{Height, ReplicaId, View};

const WORLD: &str = "world protocol=P [n=4] [clients=1] [seed=1] [delay=1ms] [sync=0] [checkpoint=16] [window=32] \
                     [twin=R] [datagrams]";

/// All commands: syntax and effect.
pub const COMMANDS: [(&str, &str); 19] = [
    (
        WORLD,
        "makes the world, in which every message takes equally long; the script's time begins a second later, when \
         all replicas are connected and the clients have their sessions",
    ),
    (
        "show KIND …",
        "adds messages of these kinds to the trace from now on, also the host's, such as `host.checkpoint`",
    ),
    ("hide KIND …", "leaves them out"),
    (
        "client C put KEY VALUE",
        "submits an operation; there are also `get KEY`, `delete KEY`, `add KEY NUMBER` and `cas KEY OLD NEW`",
    ),
    ("run SPAN", "runs for this time: `run 5ms`"),
    (
        "run until height H [on R …] [within SPAN]",
        "runs until these replicas, or all running honest ones, have executed this height; for 10 s at most unless \
         `within` is given",
    ),
    (
        "run until view V [on R …] [within SPAN]",
        "runs until they are in this view or a later one, and it has begun",
    ),
    (
        "run until stable H [on R …] [within SPAN]",
        "runs until their last stable checkpoint is this one or a later one",
    ),
    ("run until answered [within SPAN]", "runs until every operation so far has its answer"),
    (
        "crash R … [keep nothing|some|everything]",
        "cuts the power of these machines; `keep` selects the unsynced bytes that survive, by default none",
    ),
    ("start R …", "starts them again on their disks"),
    ("cut A … | B … [| …]", "cuts the links between these parts; a part has replicas, and clients as `c0`"),
    (
        "drop A … -> B … [KIND …]",
        "drops messages from the first replicas to the second ones from now on, of these kinds if any are named; `*` \
         means all",
    ),
    ("hold A … -> B … [KIND …]", "holds such messages until `release`"),
    ("delay SPAN A … -> B … [KIND …]", "delays such messages"),
    ("heal", "ends cuts, drops and delays"),
    ("release", "ends holds, and sends the held messages"),
    (
        "twin R to A … | B …",
        "selects the receivers of each of the two replicas under one key; before, only the first sends, to all",
    ),
    (
        "expect …",
        "fails unless the condition holds: `height H`, `view V`, `stable H`, each with `[on R …]`; `running R …`, \
         `down R …`, `answered N`, `waiting N`, `sent KIND N` since the world began, `refused N`",
    ),
];

/// Default limit of a `run until`.
const WITHIN_NS: u64 = secs(10);

/// One command.
#[derive(Clone, Debug)]
pub(super) enum Command {
    World(Box<Scene>),
    Show(Vec<String>),
    Hide(Vec<String>),
    Client(usize, Op),
    Run(u64),
    RunUntil(Until, u64),
    Crash(Vec<ReplicaId>, Survives),
    Start(Vec<ReplicaId>),
    Cut(Vec<Vec<String>>),
    Heal,
    Rule(Rule),
    Release,
    Twin(ReplicaId, Vec<ReplicaId>, Vec<ReplicaId>),
    Expect(Expect),
}

/// The condition that ends a `run until`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Until {
    Height(Height, Vec<ReplicaId>),
    View(View, Vec<ReplicaId>),
    Stable(Height, Vec<ReplicaId>),
    Answered,
}

/// The world of a script, as its first command describes it.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    protocol: String,
    /// `None`: the smallest that tolerates a fault.
    n: Option<usize>,
    clients: usize,
    seed: u64,
    delay_ns: u64,
    sync_ns: u64,
    checkpoint_every: u64,
    window: u64,
    twin: Option<ReplicaId>,
    transport: Transport,
}

impl Command {
    /// # Errors
    /// Returns an error with the expected and the found word.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let mut tokens = Tokens::of(line);
        let name = tokens.next("a command")?;
        let command = match name {
            "world" => Self::World(Box::new(Scene::parse(&mut tokens)?)),
            "show" => Self::Show(kinds(&mut tokens)?),
            "hide" => Self::Hide(kinds(&mut tokens)?),
            "client" => Self::Client(tokens.client()?, operation(&mut tokens)?),
            "run" => run(&mut tokens)?,
            "crash" => crash(&mut tokens)?,
            "start" => Self::Start(tokens.some_replicas()?),
            "cut" => Self::Cut(parts(&mut tokens)?),
            "heal" => Self::Heal,
            "release" => Self::Release,
            "drop" => Self::Rule(Rule::parse(RuleAction::Drop, &mut tokens)?),
            "hold" => Self::Rule(Rule::parse(RuleAction::Hold, &mut tokens)?),
            "delay" => {
                let span = span(tokens.next("a span of time, such as `5ms`")?)?;
                Self::Rule(Rule::parse(RuleAction::Delay(span), &mut tokens)?)
            }
            "twin" => twin(&mut tokens)?,
            "expect" => Self::Expect(Expect::parse(&mut tokens)?),
            other => {
                let mut known: Vec<&str> =
                    COMMANDS.iter().filter_map(|(usage, _)| usage.split_whitespace().next()).collect();
                known.dedup();
                return Err(format!("no command is named `{other}`; there are {}", known.join(", ")));
            }
        };
        let mut usages = COMMANDS.iter().filter(|(usage, _)| usage.split_whitespace().next() == Some(name));
        tokens.end().map_err(|what| match (usages.next(), usages.next()) {
            (Some((usage, _)), None) => format!("{what}: {usage}"),
            _ => what,
        })?;
        Ok(command)
    }
}

fn kinds(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    let first = tokens.next("a kind of messages, such as `commit`")?;
    Ok(std::iter::once(first).chain(tokens.rest()).map(str::to_owned).collect())
}

fn operation(tokens: &mut Tokens<'_>) -> Result<Op, String> {
    let name = tokens.next("an operation, such as `put k v`")?;
    let mut word = |what: &str| tokens.next(what).map(str::to_owned);
    let op = match name {
        "put" => Op::Put { key: word("a key")?, value: word("a value")? },
        "get" => Op::Get { key: word("a key")? },
        "delete" => Op::Delete { key: word("a key")? },
        "add" => Op::Increment { key: word("a key")?, by: number(&word("a number")?, "a number")? },
        "cas" => Op::Cas { key: word("a key")?, expect: Some(word("a value")?), value: word("a value")? },
        other => return Err(format!("expected put, get, delete, add or cas, not `{other}`")),
    };
    Ok(op)
}

fn run(tokens: &mut Tokens<'_>) -> Result<Command, String> {
    if !tokens.take("until") {
        return Ok(Command::Run(span(tokens.next("a span of time, or `until`")?)?));
    }
    let until = match tokens.next("height, view, stable or answered")? {
        "height" => Until::Height(Height(tokens.number("a height")?), tokens.on()?),
        "view" => Until::View(View(tokens.number("a view")?), tokens.on()?),
        "stable" => Until::Stable(Height(tokens.number("a height")?), tokens.on()?),
        "answered" => Until::Answered,
        other => return Err(format!("expected height, view, stable or answered, not `{other}`")),
    };
    let within =
        if tokens.take("within") { span(tokens.next("a span of time, such as `2s`")?)? } else { WITHIN_NS };
    Ok(Command::RunUntil(until, within))
}

fn crash(tokens: &mut Tokens<'_>) -> Result<Command, String> {
    let ids = tokens.some_replicas()?;
    let survives = if tokens.take("keep") {
        match tokens.next("nothing, some or everything")? {
            "nothing" => Survives::Nothing,
            "some" => Survives::Some,
            "everything" => Survives::Everything,
            other => return Err(format!("expected nothing, some or everything, not `{other}`")),
        }
    } else {
        Survives::Nothing
    };
    Ok(Command::Crash(ids, survives))
}

fn parts(tokens: &mut Tokens<'_>) -> Result<Vec<Vec<String>>, String> {
    let rest = tokens.rest();
    let parts: Vec<Vec<String>> = rest
        .split(|word| *word == "|")
        .map(|part| part.iter().map(|word| (*word).to_owned()).collect())
        .collect();
    if parts.len() < 2 || parts.iter().any(Vec::is_empty) {
        return Err("expected two parts or more, such as `0 | 1 2 3`".to_owned());
    }
    Ok(parts)
}

fn twin(tokens: &mut Tokens<'_>) -> Result<Command, String> {
    let id = tokens.replica()?;
    tokens.demand("to")?;
    let first = tokens.replicas();
    tokens.demand("|")?;
    Ok(Command::Twin(id, first, tokens.replicas()))
}

impl Scene {
    fn parse(tokens: &mut Tokens<'_>) -> Result<Self, String> {
        let mut scene = Self {
            protocol: String::new(),
            n: None,
            clients: 1,
            seed: 1,
            delay_ns: crate::ms(1),
            sync_ns: 0,
            checkpoint_every: 16,
            window: 32,
            twin: None,
            transport: Transport::Links,
        };
        for word in tokens.rest() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "protocol" => value.clone_into(&mut scene.protocol),
                "n" => scene.n = Some(number(value, "a number of replicas")?),
                "clients" => scene.clients = number(value, "a number of clients")?,
                "seed" => scene.seed = number(value, "a seed")?,
                "delay" => scene.delay_ns = span(value)?,
                "sync" => scene.sync_ns = span(value)?,
                "checkpoint" => scene.checkpoint_every = number(value, "a number of heights")?,
                "window" => scene.window = number(value, "a number of heights")?,
                "twin" => {
                    let id = tokens::replica(value);
                    scene.twin = Some(id.ok_or_else(|| format!("expected a replica, not `{value}`"))?);
                }
                "datagrams" if value.is_empty() => scene.transport = Transport::Datagrams,
                _ => return Err(format!("`{word}` is no setting of a world: {}", WORLD)),
            }
        }
        if scene.protocol.is_empty() {
            return Err("expected `protocol=` and its name".to_owned());
        }
        Ok(scene)
    }

    /// Returns the settings of the world.
    pub(super) fn open(&self, find: &dyn Fn(&str) -> Option<Entry>) -> Result<Settings, String> {
        let entry =
            find(&self.protocol).ok_or_else(|| format!("no protocol is named `{}`", self.protocol))?;
        let mut settings = Settings::new(&entry, self.seed);
        if let Some(n) = self.n {
            settings = settings.with_n(n);
        }
        settings.clients = self.clients;
        settings.conditions = LinkConditions::constant(self.delay_ns);
        settings.costs = Costs { sync_ns: self.sync_ns, ..Costs::NONE };
        settings.checkpoint_every = self.checkpoint_every;
        settings.window = self.window;
        settings.transport = self.transport;
        if let Some(id) = self.twin {
            settings.byzantine.replicas.insert(id, Byzantine::Twin);
        }
        Ok(settings)
    }
}
