//! The player of scripts: a world that obeys commands.

use super::command::{Command, Until};
use super::expect::meant;
use super::observer::{Observer, ZERO};
use super::tokens;
use crate::network_fault::{Change, NetworkFault};
use crate::places::Places;
use crate::settings::Settings;
use crate::world::World;
use quorate_types::{ReplicaId, Time};

/// The player of a script.
pub(super) struct Player {
    world: World,
    observer: Observer,
    /// Number of refused messages before the script began.
    refused_before: u64,
}

impl Player {
    pub(super) fn new(settings: Settings) -> Result<Self, String> {
        let twins: Vec<ReplicaId> = settings.byzantine.replicas.keys().copied().collect();
        let clients = settings.clients;
        let mut world = World::new(settings).map_err(|why| why.to_string())?;
        world.take_exact_times();
        for id in twins {
            world.divide(id, Places::ALL, Places::default());
        }
        world.run_until(ZERO).map_err(|failure| failure.to_string())?;
        if let Some(client) = (0..clients).find(|client| world.session(*client).is_none()) {
            return Err(format!("client {client} has no session after a second"));
        }
        let observer = Observer::open(&mut world);
        Ok(Self { refused_before: world.rejected().values().sum(), world, observer })
    }

    /// Returns the trace lines of a command.
    pub(super) fn take_lines(&mut self) -> Vec<String> {
        self.observer.trace.take_lines(self.world.now())
    }

    /// Returns the remaining trace lines.
    pub(super) fn rest(&mut self) -> Vec<String> {
        self.observer.trace.take_lines(Time(u64::MAX))
    }

    /// Returns an error with the line of a rule that never applied.
    pub(super) fn check_rules(&self) -> Result<(), (usize, String)> {
        let idle = self.observer.rules().idle();
        idle.map_or(Ok(()), |line| Err((line, "no message was ever sent that this rule covers".to_owned())))
    }

    pub(super) fn carry_out(&mut self, command: Command, line: usize) -> Result<(), String> {
        let Self { world, observer, .. } = self;
        match command {
            Command::World(_) => {}
            Command::Show(kinds) => kinds.iter().for_each(|kind| observer.trace.show(kind)),
            Command::Hide(kinds) => kinds.iter().for_each(|kind| observer.trace.hide(kind)),
            Command::Client(client, op) => {
                if client >= world.settings().clients {
                    return Err(format!("there are {} clients", world.settings().clients));
                }
                observer.ask(world, client, op);
            }
            Command::Run(span) => {
                let end = world.now().plus(span);
                let result = world.run_shown(end, |world| observer.look(world));
                return result.map_err(|failure| failure.to_string());
            }
            Command::RunUntil(until, within) => {
                let result = world.run_while(&until.to_string(), within, |world| {
                    observer.look(world);
                    !until.holds(world)
                });
                observer.look(world);
                return result.map_err(|failure| failure.to_string());
            }
            Command::Crash(ids, survives) => {
                for id in known(world, &ids)? {
                    world.crash(*id, survives);
                }
            }
            Command::Start(ids) => {
                for id in known(world, &ids)? {
                    world.start(*id)?;
                }
            }
            Command::Cut(parts) => cut(world, &parts)?,
            Command::Heal => {
                observer.rules().end(false);
                world.heal();
            }
            Command::Rule(rule) => {
                known(world, &rule.names())?;
                observer.rules().add(rule, line);
            }
            Command::Release => {
                observer.rules().end(true);
                observer.release(world.now());
                world.release();
            }
            Command::Twin(id, first, second) => divide(world, id, &first, &second)?,
            Command::Expect(expect) => {
                let refused: u64 = world.rejected().values().sum();
                let refused = refused.saturating_sub(self.refused_before);
                return expect.check(world, |kind| observer.sent(kind), refused);
            }
        }
        observer.look(world);
        Ok(())
    }
}

/// Selects the receivers of each half of a twin. The first half also sends to clients.
fn divide(world: &mut World, id: ReplicaId, first: &[ReplicaId], second: &[ReplicaId]) -> Result<(), String> {
    if !world.settings().byzantine.replicas.contains_key(&id) {
        return Err(format!("replica {id} is no twin; `world … twin={id}` makes it one"));
    }
    let n = world.settings().n;
    let clients = (0..=world.settings().clients).map(|client| n.saturating_add(client));
    let first = known(world, first)?.iter().map(|id| id.index()).chain(clients);
    let second = known(world, second)?.iter().map(|id| id.index());
    world.divide(id, Places::of(first), Places::of(second));
    Ok(())
}

/// Checks that all of these are replicas of the world.
fn known<'a>(world: &World, ids: &'a [ReplicaId]) -> Result<&'a [ReplicaId], String> {
    match ids.iter().find(|id| id.index() >= world.settings().n) {
        Some(id) => Err(format!("there is no replica {id}")),
        None => Ok(ids),
    }
}

fn cut(world: &mut World, parts: &[Vec<String>]) -> Result<(), String> {
    let (n, all) = (world.settings().n, world.settings().n.saturating_add(world.settings().clients));
    let mut places = Vec::new();
    for part in parts {
        let mut members = Vec::new();
        for word in part {
            let place = tokens::place(word, n).filter(|place| *place < all);
            members.push(place.ok_or_else(|| format!("expected a replica or a client, not `{word}`"))?);
        }
        places.push(Places::of(members));
    }
    for (index, from) in places.iter().enumerate() {
        for to in places.iter().skip(index.saturating_add(1)) {
            world.begin_fault(NetworkFault {
                from: *from,
                to: *to,
                both_ways: true,
                change: Change::Cut,
                fault: None,
            });
        }
    }
    Ok(())
}

impl Until {
    fn holds(&self, world: &World) -> bool {
        let all = |named: &[ReplicaId], holds: &dyn Fn(ReplicaId) -> bool| {
            meant(world, named).into_iter().all(holds)
        };
        let status = |id| world.status(id);
        match self {
            Self::Height(height, on) => all(on, &|id| world.executed(id) >= *height),
            Self::View(view, on) => {
                all(on, &|id| status(id).is_some_and(|status| status.view >= *view && status.normal))
            }
            Self::Stable(height, on) => {
                all(on, &|id| status(id).is_some_and(|status| status.stable >= *height))
            }
            Self::Answered => world.all_done(),
        }
    }
}

impl std::fmt::Display for Until {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Height(height, _) => write!(f, "height {height} is executed"),
            Self::View(view, _) => write!(f, "view {view} has begun"),
            Self::Stable(height, _) => write!(f, "the checkpoint at height {height} is stable"),
            Self::Answered => f.write_str("every operation has its answer"),
        }
    }
}
