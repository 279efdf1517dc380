//! `--set NAME=VALUE` and `--link-delay`: settings of a new cluster that replace defaults.

use super::cluster::ClusterConfig;
use super::link_delay::{LinkDelay, LinkDelays};
use super::node::DiskLimits;
use super::params::{self, ParamsKind};
use crate::exit::Failure;
use quorate_client::config::fields::{GENESIS, limit_names};
use quorate_client::config::reader::Source;
use quorate_client::config::{ConfigError, parse_size};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The options of every command that makes a cluster.
#[derive(Clone, PartialEq, Debug, Default, clap::Args)]
pub struct Settings {
    /// A limit of the cluster or of its nodes, or a parameter of the protocol, by its name in cluster.toml or node.toml,
    /// with a value that replaces its default: block_requests_max=400, keep_bytes=64MiB; once for each
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<Setting>,
    /// One-way delays between replicas that their links emulate, for experiments: a duration such as 100ms for all links,
    /// `regions` for five cloud regions to which replicas belong in turn, or a file with a matrix of milliseconds. Row i of the
    /// matrix has the delays from replica i to each replica, as CSV, or as delay_ms = [[…], …] in a file named *.toml. Timers
    /// and bounds stay as they are; --set changes them
    #[arg(long, value_name = "DELAY")]
    pub link_delay: Option<LinkDelay>,
}

/// A field and its value.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    name: String,
    value: toml::Value,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').unwrap_or_default();
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || value.is_empty() {
            return Err("expected NAME=VALUE, for example block_requests_max=400".to_owned());
        }
        // A word that is no TOML value is a text: avoiding, 256KiB.
        let read: Option<toml::Table> = format!("value = {value}").parse().ok();
        let read = read.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
        let value = read.unwrap_or_else(|| toml::Value::String(value.to_owned()));
        Ok(Self { name: name.to_owned(), value })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// A cluster with its settings applied.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The shared configuration.
    pub cluster: ClusterConfig,
    /// The parameters of the protocol that its nodes choose.
    pub local_params: toml::Table,
    /// Limits on the disk space of its nodes.
    pub disk: DiskLimits,
    /// Emulated delays between its nodes.
    pub delays: LinkDelays,
}

impl Settings {
    /// Returns the first option that is given, as on the command line; `None` if all have their defaults.
    #[must_use]
    pub fn first(&self) -> Option<String> {
        let set = self.set.first().map(|setting| format!("--set {setting}"));
        set.or_else(|| Some(format!("--link-delay {}", self.link_delay.as_ref()?)))
    }

    /// Returns the cluster with these settings, which has another identity.
    ///
    /// # Errors
    /// Fails when there is no such field, it cannot have this value, or it is set twice, and when the delays do not fit the number
    /// of replicas.
    pub fn apply(&self, cluster: ClusterConfig) -> Result<Applied, Failure> {
        let (mut local, mut disk) = (toml::Table::new(), DiskLimits::default());
        let delays = self.link_delay.as_ref().map(|delay| delay.between(cluster.n())).transpose()?;
        let delays = delays.unwrap_or_default();
        if self.set.is_empty() {
            return Ok(Applied { cluster, local_params: local, disk, delays });
        }
        let names: BTreeSet<&str> = self.set.iter().map(|setting| setting.name.as_str()).collect();
        if names.len() < self.set.len() {
            return Err(Failure::usage("--set: a name is given twice; remove one of them"));
        }
        let mut root: toml::Table = cluster.to_toml().parse().map_err(Failure::run)?;
        let protocol = cluster.entry.spec.name.as_str();
        let defaults = params::defaults(cluster.entry);
        let limits = limit_names();
        for Setting { name, value } in &self.set {
            let path: &[&str] = if limits.contains(&name.as_str()) {
                &[GENESIS]
            } else if cluster.params.contains_key(name) {
                &["protocol", protocol]
            } else if defaults.contains_key(name) {
                local.insert(name.clone(), value.clone());
                continue;
            } else if let Some(limit) = disk.field_mut(name) {
                *limit = value.as_str().and_then(parse_size).ok_or_else(|| {
                    Failure::usage(format!("--set: {name}: expected a size such as 64MiB, found {value}"))
                })?;
                continue;
            } else {
                let known = limits.iter().copied().chain(DiskLimits::NAMES);
                let known: Vec<&str> = known.chain(defaults.keys().map(String::as_str)).collect();
                let known = known.join(", ");
                return Err(Failure::usage(format!(
                    "--set {name}: unknown; {protocol} has {known}; correct its name"
                )));
            };
            let table = path.iter().try_fold(&mut root, |table, name| table.get_mut(*name)?.as_table_mut());
            let table = table.ok_or_else(|| Failure::run(format!("no table for {name}")))?;
            table.insert(name.clone(), value.clone());
        }
        let wrong = |error: ConfigError| Failure::usage(format!("--set: {}: {}", error.field, error.problem));
        let made = ClusterConfig::read(&Source::of("cluster.toml", &root.to_string())).map_err(wrong)?;
        let text = toml::Table::from_iter([(protocol.to_owned(), toml::Value::Table(local))]);
        let text = toml::Table::from_iter([("protocol".to_owned(), toml::Value::Table(text))]).to_string();
        let source = Source::of("node.toml", &text);
        let mut root = source.parse().map_err(wrong)?;
        let (local, _) = params::read(&source, &mut root, cluster.entry, ParamsKind::Local).map_err(wrong)?;
        let ClusterConfig { genesis, entry, params, links, replicas, .. } = made;
        let cluster = ClusterConfig::new(genesis, entry, params, links, replicas);
        Ok(Applied { cluster, local_params: local, disk, delays })
    }
}
