//! Arguments and output of commands that are clients of a cluster.

use super::arguments::cluster_file;
use super::escape::escaped;
use crate::config::{ClusterConfig, parse_seconds};
use crate::exit::Failure;
use crate::out;
use crate::service::Service;
use quorate_client::driver::{Client, Options};
use quorate_client::keys;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The cluster, the key, and the patience.
#[derive(Debug, clap::Args)]
pub(super) struct ClientArgs {
    /// The cluster's file, or its folder
    #[arg(long, value_name = "FILE", default_value = "cluster.toml", value_parser = cluster_file, global = true)]
    cluster: PathBuf,
    /// Private key of a registered client; more than four programs at once with one key wait for each other's replies
    /// [default: the key in the folder clients beside cluster.toml that has the name of the service]
    #[arg(long = "key", value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    /// Time to wait for the result: 30 (seconds), 500ms, 2m
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_seconds, global = true)]
    timeout: Duration,
}

impl ClientArgs {
    /// Reads the cluster's file, which must be that of a cluster of `service`.
    pub(super) fn cluster(&self, service: Service) -> Result<ClusterConfig, Failure> {
        let cluster = ClusterConfig::load(&self.cluster)?;
        cluster.check_service(service)?;
        Ok(cluster)
    }

    /// Opens a session of the client.
    pub(super) fn connect(&self, cluster: &ClusterConfig, service: Service) -> Result<Client, Failure> {
        let key = self.key_file.clone().unwrap_or_else(|| default_key(&self.cluster, service));
        let key = keys::read_private(&key).map_err(Failure::usage)?;
        let is_watched = std::io::stderr().is_terminal();
        let waiting: Option<fn(&str)> = if is_watched { Some(|text| eprintln!("{text}")) } else { None };
        let options = Options { timeout: self.timeout, waiting, ..Options::default() };
        Client::connect(cluster.client_info(), key, options).map_err(Failure::run)
    }
}

fn default_key(cluster: &Path, service: Service) -> PathBuf {
    cluster.parent().unwrap_or(Path::new("")).join(service.client_key())
}

/// Writes a result to a file, byte for byte, or prints it. `-` is standard output, without a line break after the result.
pub(super) fn put_result(result: &[u8], file: Option<&Path>) -> Result<(), Failure> {
    match file {
        Some(file) if file != Path::new("-") => {
            std::fs::write(file, result).map_err(|error| Failure::run(format!("{}: {error}", file.display())))
        }
        Some(_) => out::bytes(result),
        None if std::io::stdout().is_terminal() => out::line(escaped(result)),
        None => out::bytes(&[result, b"\n".as_slice()].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_key_is_beside_the_cluster_file() {
        let key = |file: &str| default_key(Path::new(file), Service::KV);
        assert_eq!(key("cluster.toml"), Path::new("clients/kv.key"));
        assert_eq!(key("/a/b/cluster.toml"), Path::new("/a/b/clients/kv.key"));
    }
}
