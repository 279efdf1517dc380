//! Examples that people copy from depend on no more than they show: from `cargo metadata`, all dependencies included.

use super::Findings;
use super::config::Config;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The parts of `cargo metadata` that are read here.
#[derive(Deserialize)]
pub(super) struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `None`: an ordinary one.
    kind: Option<String>,
}

impl Dependency {
    fn is_for_tests_alone(&self) -> bool {
        self.dep_kinds.iter().all(|dependency| dependency.kind.as_deref() == Some("dev"))
    }
}

/// Asks cargo.
pub(super) fn metadata(root: &Path) -> Result<Metadata> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1"]).current_dir(root);
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

impl Metadata {
    /// Names of all packages that a package depends on. Dependencies for tests count for the package itself alone.
    fn closure(&self, package: &str) -> BTreeSet<&str> {
        let nodes: BTreeMap<&str, &Node> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let mut seen = BTreeSet::from([package]);
        let mut waiting = vec![package];
        while let Some(id) = waiting.pop() {
            let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            for dependency in
                dependencies.filter(|dependency| id == package || !dependency.is_for_tests_alone())
            {
                if seen.insert(&dependency.pkg) {
                    waiting.push(&dependency.pkg);
                }
            }
        }
        self.packages
            .iter()
            .filter(|package| seen.contains(package.id.as_str()))
            .map(|package| package.name.as_str())
            .collect()
    }
}

pub(super) fn check(metadata: &Metadata, config: &Config, findings: &mut Findings) {
    for (example, forbidden) in &config.lean_examples {
        let is_it =
            |target: &Target| target.name == *example && target.kind.iter().any(|kind| kind == "example");
        let Some(package) = metadata.packages.iter().find(|package| package.targets.iter().any(is_it)) else {
            findings.push(format!("tidy.toml: [lean_examples] there is no example {example}"));
            continue;
        };
        let all = metadata.closure(&package.id);
        for name in
            forbidden.iter().map(|name| format!("quorate-{name}")).filter(|name| all.contains(name.as_str()))
        {
            findings.push(format!(
                "examples/{example}.rs: its package {} depends on {name}; ARCHITECTURE.md says why it must not",
                package.name
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package with the example, and one that it depends on in this way, which has a dependency for tests.
    fn findings(kind: &str) -> Findings {
        let text = r#"{
            "packages": [
                {"id": "a", "name": "quorate-node", "targets": [{"name": "application", "kind": ["example"]}]},
                {"id": "b", "name": "quorate-host", "targets": []},
                {"id": "c", "name": "quorate-sim", "targets": []},
                {"id": "d", "name": "quorate-lab", "targets": []}
            ],
            "resolve": {"nodes": [
                {"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": KIND}]}]},
                {"id": "b", "deps": [{"pkg": "c", "dep_kinds": [{"kind": null}]}, {"pkg": "d", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "c", "deps": []},
                {"id": "d", "deps": []}
            ]}
        }"#;
        let metadata: Metadata = serde_json::from_str(&text.replace("KIND", kind)).unwrap();
        let config =
            "members = []\npure = []\n[edges]\n[lean_examples]\napplication = ['sim', 'lab']\nnone = []";
        let mut findings = Findings::new();
        check(&metadata, &toml::from_str(config).unwrap(), &mut findings);
        findings
    }

    #[test]
    fn forbidden_dependency_is_found_however_far() {
        for kind in ["null", "\"dev\"", "\"build\""] {
            let found = findings(kind);
            assert!(found.iter().any(|finding| finding.contains("depends on quorate-sim")), "{found:?}");
            assert!(!found.iter().any(|finding| finding.contains("quorate-lab")), "{found:?}");
            assert!(found.iter().any(|finding| finding.contains("no example none")), "{found:?}");
        }
    }
}
