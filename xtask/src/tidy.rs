//! Rules for the repository that compiler and clippy cannot check.
//!
//! Each rule is a function from the repository's text to findings, so a test gives it a repository that breaks the
//! rule. Exceptions stand in `tidy.toml`, each with its reason. An exception that is no longer needed is a finding
//! too, so the list can only shrink.

mod config;
mod documents;
mod headless;
mod lean;
mod protocols;
mod rust;
mod source;
#[cfg(test)]
mod tests;
mod walls;
mod workspace;

use anyhow::{Context, Result, bail};
use config::Config;
pub(crate) use source::is_test;
use std::collections::BTreeMap;
use std::path::Path;

/// The repository's text files by path from the root, with `/` between folders.
pub(crate) struct Repository {
    files: BTreeMap<String, String>,
    /// Paths of all files and folders, read or not.
    paths: Vec<String>,
}

impl Repository {
    /// Reads the repository at `root`.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let mut repository = Self { files: BTreeMap::new(), paths: Vec::new() };
        repository.walk(root, "")?;
        Ok(repository)
    }

    fn walk(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        let entries = folder.read_dir().with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            // Build outputs and git's own data are no part of the repository.
            if kind.is_dir() && name != "target" && name != ".git" {
                self.paths.push(path.clone());
                self.walk(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() {
                if [".rs", ".md", ".toml", ".js"].iter().any(|suffix| name.ends_with(suffix)) {
                    let text = std::fs::read_to_string(entry.path())
                        .with_context(|| format!("cannot read {path}"))?;
                    self.files.insert(path.clone(), text);
                }
                self.paths.push(path);
            }
        }
        Ok(())
    }

    /// Returns the text of a file.
    pub(crate) fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns path and text of the files whose paths end with `suffix`.
    pub(crate) fn ending(&self, suffix: &str) -> impl Iterator<Item = (&str, &str)> {
        let ends = move |(path, _): &(&str, &str)| path.ends_with(suffix);
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str())).filter(ends)
    }

    fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|other| other == path)
    }
}

/// Broken rules, each with its place.
pub(crate) type Findings = Vec<String>;

fn config(repository: &Repository) -> Result<Config> {
    let text = repository.file("tidy.toml").context("tidy.toml is missing")?;
    toml::from_str(text).context("tidy.toml")
}

fn check(repository: &Repository) -> Result<Findings> {
    let config = config(repository)?;
    let mut findings = Findings::new();
    workspace::check(repository, &config, &mut findings);
    rust::check(repository, &config, &mut findings);
    walls::check(repository, &config, &mut findings);
    protocols::check(repository, &mut findings);
    documents::check(repository, &mut findings);
    headless::check(repository, &config, &mut findings);
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Checks the repository at `root` and prints the findings.
pub(crate) fn run(root: &Path) -> Result<()> {
    let repository = Repository::load(root)?;
    let mut findings = check(&repository)?;
    lean::check(&lean::metadata(root)?, &config(&repository)?, &mut findings);
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("tidy: {count} findings"),
    }
}

/// Prints the sentences and test names of one crate (or of `documents`) that begin without a noun.
pub(crate) fn list_headless(root: &Path, name: &str) -> Result<()> {
    print!("{}", headless::list(&Repository::load(root)?, name));
    Ok(())
}
