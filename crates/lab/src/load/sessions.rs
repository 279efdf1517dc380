//! Keys and sessions of the generator's clients.

use super::generator::Generator;
use super::numbers::nanos;
use super::options::{LoadError, LoadOptions, PATIENCE};
use quorate_client::core::{Answer, Event, Settings};
use quorate_client::driver::{ClientPool, PoolEvent};
use quorate_crypto::{Scheme, SigningKey};
use quorate_types::PublicKey;
use quorate_types::digest::keyed_tag;
use quorate_types::limits::REGISTER_KEYS_MAX;
use std::collections::BTreeSet;
use std::time::Duration;

/// Keys that generators use, all runs together. Keys stay registered for ever, and there is room for
/// [`quorate_types::limits::KEYS_MAX`]: this many leave room for everybody else.
const KEYS: u32 = 1 << 16;

/// The key of one of the generator's clients. Never for anything but load.
fn client_key(number: u32) -> SigningKey {
    let mut name = b"quorate load ".to_vec();
    name.extend_from_slice(&number.to_le_bytes());
    SigningKey::from_seed(Scheme::Ed25519, keyed_tag(&[0; 32], &name))
}

/// The keys of one generator: neighbours, from a place that is another for each process, because a client's replies go to few
/// connections with its key.
fn client_keys(first: u32, count: usize) -> Vec<SigningKey> {
    (0..KEYS).cycle().skip(usize::try_from(first % KEYS).unwrap_or(0)).take(count).map(client_key).collect()
}

impl Generator {
    pub(super) fn open_sessions(&mut self, admin: SigningKey) -> Result<(), LoadError> {
        let first = getrandom::u32().map_err(|error| LoadError::Stuck(error.to_string()))?;
        let keys = client_keys(first, self.options.clients);
        self.register(admin, &keys)?;
        let settings = settings(&self.pool, &self.options);
        let mut waiting = BTreeSet::new();
        for key in keys {
            let id = self.pool.add(key, settings)?;
            waiting.insert(id);
            self.cores.push(id);
        }
        let until = self.pool.now().plus(nanos(PATIENCE));
        while !waiting.is_empty() {
            for event in self.hear()? {
                match event {
                    PoolEvent::Client(id, Event::Opened(_)) => {
                        waiting.remove(&id);
                    }
                    // Displaced while others were opened.
                    PoolEvent::Client(id, Event::SessionLost) if self.cores.contains(&id) => {
                        self.pool.reopen(id)?;
                        waiting.insert(id);
                    }
                    PoolEvent::Client(_, Event::OpenFailed(why)) => {
                        return Err(LoadError::Stuck(format!("a session was not opened: {why}")));
                    }
                    _ => {}
                }
            }
            if self.pool.now() > until {
                let text = format!(
                    "{} sessions were not opened in {PATIENCE:?}; {}",
                    waiting.len(),
                    self.pool.trouble()
                );
                return Err(LoadError::Stuck(text));
            }
        }
        Ok(())
    }

    fn register(&mut self, admin: SigningKey, keys: &[SigningKey]) -> Result<(), LoadError> {
        let settings = self.pool.settings();
        let id = self.pool.add(admin, settings)?;
        let public: Vec<PublicKey> = keys.iter().map(SigningKey::public).collect();
        let mut left = 0usize;
        for keys in public.chunks(REGISTER_KEYS_MAX) {
            let now = self.pool.now();
            let Some(core) = self.pool.core(id) else { break };
            core.submit_keys(now, keys.iter().copied())
                .map_err(|why| LoadError::Stuck(format!("cannot register keys: {why}")))?;
            left = left.saturating_add(1);
        }
        let until = self.pool.now().plus(nanos(PATIENCE));
        while left > 0 {
            for event in self.hear()? {
                match event {
                    PoolEvent::Client(_, Event::Done { answer: Answer::Registered(_), .. }) => {
                        left = left.saturating_sub(1);
                    }
                    PoolEvent::Client(_, Event::Failed { why, .. } | Event::OpenFailed(why)) => {
                        let text = format!("the admin key cannot register clients: {why}");
                        return Err(LoadError::Stuck(text));
                    }
                    _ => {}
                }
            }
            if self.pool.now() > until {
                let text = format!("the cluster gives no answer in {PATIENCE:?}; {}", self.pool.trouble());
                return Err(LoadError::Stuck(text));
            }
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<Vec<PoolEvent>, LoadError> {
        let mut told = Vec::new();
        self.pool.poll(Duration::from_millis(50), &mut told)?;
        Ok(told)
    }
}

/// Settings of the generator's clients: they have as much in flight as the run asks for.
fn settings(pool: &ClientPool, options: &LoadOptions) -> Settings {
    let mut settings = pool.settings();
    if options.bundle.is_some() || options.presign > 0 {
        // The run decides how many bundles are in flight, not the client.
        settings.in_flight_max = usize::try_from(settings.client_window).unwrap_or(usize::MAX);
    }
    settings.audience = options.audience;
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_have_few_keys_in_all_and_each_its_own() {
        let publics = |first, count| -> BTreeSet<PublicKey> {
            client_keys(first, count).iter().map(SigningKey::public).collect()
        };
        let (one, other) = (publics(7, 20), publics(27, 20));
        assert_eq!((one.len(), one.intersection(&other).count()), (20, 0));
        assert_eq!(publics(KEYS - 1, 2), publics(u32::MAX, 2), "around the end");
        assert_eq!(publics(KEYS - 1, 2).intersection(&publics(0, 1)).count(), 1);
    }
}
