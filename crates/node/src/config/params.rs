//! `[protocol.<name>]`: the parameters of the protocol, shared ones in `cluster.toml`, local ones in `node.toml`. The name
//! is the protocol's own, or a longer one that stands for it.

use quorate_client::config::ConfigError;
use quorate_client::config::reader::{Section, Source};
use quorate_consensus::Entry;
use std::collections::BTreeMap;

/// The kind of parameters that a file may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ParamsKind {
    /// Parameters that must be equal everywhere. The file must have all of them, because the identity of the cluster must not
    /// depend on the defaults of a version.
    Shared,
    /// The other parameters; a missing one has its default.
    Local,
}

/// Returns the path of the table of a protocol's parameters, under its own name.
pub(super) fn table_path(entry: &Entry) -> String {
    format!("protocol.{}", entry.spec.name)
}

/// Returns the parameters that a file may set, with their defaults. Those for the simulator alone are left out.
pub(crate) fn defaults(entry: &Entry) -> toml::Table {
    let mut defaults = (entry.params)().unwrap_or_default();
    defaults.retain(|name, _| !entry.exam_only.contains(&name));
    defaults
}

/// Reads the parameters of one kind from the file's `[protocol.<name>]`. The returned lines of fields are under the
/// protocol's own name, for any name in the file.
pub(super) fn read(
    source: &Source,
    root: &mut Section<'_>,
    entry: &Entry,
    kind: ParamsKind,
) -> Result<(toml::Table, BTreeMap<String, usize>), ConfigError> {
    let (mut lines, mut taken) = (BTreeMap::new(), toml::Table::new());
    let mut table = entry.spec.name.to_string();
    let defaults = defaults(entry);
    let is_shared = |name: &str| entry.spec.shared_params.contains(&name);
    let wanted = |param: &str| is_shared(param) == (kind == ParamsKind::Shared);
    if let Some(mut protocols) = root.optional("protocol")? {
        table = table_of(&protocols, entry)?.unwrap_or(table);
        if let Some(mut section) = protocols.section_named(&table)? {
            let given = values(source, &table);
            for param in section.names() {
                let default = defaults.get(&param).filter(|_| wanted(&param));
                let default = default.ok_or_else(|| {
                    let problem = if entry.exam_only.contains(&param.as_str()) {
                        "only the simulator may set this; remove it".to_owned()
                    } else {
                        unknown(&param, &defaults, &is_shared, kind)
                    };
                    section.error_at(&param, problem)
                })?;
                let value =
                    given.get(&param).filter(|value| value.same_type(default) && fits(entry, &param, value));
                let value = value.ok_or_else(|| {
                    let problem = format!(
                        "expected {} that the protocol can use; write, for example, {param} = {default}",
                        article(default)
                    );
                    section.error_at(&param, problem)
                })?;
                taken.insert(param.clone(), value.clone());
                section.skip(&param);
            }
            let (found, own) = (format!("protocol.{table}"), table_path(entry));
            let fields = section.finish()?.into_iter();
            lines.extend(fields.map(|(field, line)| (field.replacen(&found, &own, 1), line)));
        }
        lines.append(&mut protocols.finish()?);
    }
    let missing = defaults.iter().find(|(param, _)| wanted(param) && !taken.contains_key(*param));
    if let Some((param, default)) = missing.filter(|_| kind == ParamsKind::Shared) {
        let expected = article(default);
        let problem = format!(
            "missing in [protocol.{table}]; expected {expected}; add, for example, {param} = {default}"
        );
        return Err(root.error_at("protocol", problem));
    }
    Ok((taken, lines))
}

/// Returns the name of the table of this protocol in the file, if the file has one.
fn table_of(protocols: &Section<'_>, entry: &Entry) -> Result<Option<String>, ConfigError> {
    let name = entry.spec.name;
    let mut tables = protocols.names();
    let is_own = |table: &str| quorate_protocols::find(table).is_some_and(|found| found.spec.name == name);
    if let Some(other) = tables.iter().find(|table| !is_own(table)) {
        let problem = format!("parameters of another protocol; this cluster runs {name}; remove this table");
        return Err(protocols.error_at(other, problem));
    }
    if let [one, other, ..] = tables.as_slice() {
        let problem = format!("the same protocol as {one}; move its fields to [protocol.{one}]");
        return Err(protocols.error_at(other, problem));
    }
    Ok(tables.pop())
}

/// Whether the protocol's own type can hold the value: a count cannot be negative. Only an open protocol checks the range.
fn fits(entry: &Entry, param: &str, value: &toml::Value) -> bool {
    let alone = toml::Table::from_iter([(param.to_owned(), value.clone())]);
    (entry.synchrony)(&alone).is_ok()
}

/// Returns the values of a table. A section gives only their lines.
fn values(source: &Source, name: &str) -> toml::Table {
    let root: toml::Table = source.text().parse().unwrap_or_default();
    let table =
        root.get("protocol").and_then(|protocols| protocols.get(name)).and_then(toml::Value::as_table);
    table.cloned().unwrap_or_default()
}

fn unknown(
    param: &str,
    defaults: &toml::Table,
    is_shared: &dyn Fn(&str) -> bool,
    kind: ParamsKind,
) -> String {
    match (defaults.contains_key(param), kind) {
        (true, ParamsKind::Shared) => "a value of each node; move it to [protocol] of node.toml".to_owned(),
        (true, ParamsKind::Local) => {
            "must be equal at all nodes; remove it here, cluster.toml has it".to_owned()
        }
        (false, _) => {
            let allowed = defaults.keys().filter(|name| is_shared(name) == (kind == ParamsKind::Shared));
            let allowed: Vec<&str> = allowed.map(String::as_str).collect();
            let allowed = if allowed.is_empty() {
                "nothing".to_owned()
            } else {
                format!("one of {}", allowed.join(", "))
            };
            format!("unknown field; expected {allowed}; correct its name or remove it")
        }
    }
}

fn article(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::Integer(_) => "a whole number",
        toml::Value::Float(_) => "a number with a decimal point",
        toml::Value::Boolean(_) => "true or false",
        toml::Value::String(_) => "a text",
        toml::Value::Array(_) => "a list",
        toml::Value::Table(_) => "a table",
        toml::Value::Datetime(_) => "a date",
    }
}
