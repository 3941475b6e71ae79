//! Converts nested settings to a flat list of dotted names and values.

/// A value of a configuration file: a table of values, or a leaf.
pub trait Tree {
    /// Returns the entries of a table; `None` for a leaf.
    fn entries(&self) -> Option<Vec<(&String, &Self)>>;

    /// Returns a leaf as text; a string is not quoted.
    fn text(&self) -> String;
}

impl Tree for toml::Value {
    fn entries(&self) -> Option<Vec<(&String, &Self)>> {
        self.as_table().map(|table| table.iter().collect())
    }

    fn text(&self) -> String {
        self.as_str().map_or_else(|| self.to_string(), str::to_owned)
    }
}

impl Tree for serde_json::Value {
    fn entries(&self) -> Option<Vec<(&String, &Self)>> {
        self.as_object().map(|map| map.iter().collect())
    }

    fn text(&self) -> String {
        self.as_str().map_or_else(|| self.to_string(), str::to_owned)
    }
}

/// Returns all leaves of a table with their dotted names, such as `train.gamma`, in the order of the table.
///
/// ```
/// let table: toml::Table = "[train]\ngamma = 0.99\n[train.net]\nhidden = [64]".parse().unwrap();
/// let names: Vec<String> = epo_report::settings::leaves(&table).into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["train.gamma", "train.net.hidden"]);
/// ```
pub fn leaves<'a, V: Tree>(table: impl IntoIterator<Item = (&'a String, &'a V)>) -> Vec<(String, &'a V)> {
    let mut found = Vec::new();
    collect("", table.into_iter().collect(), &mut found);
    found
}

fn collect<'a, V: Tree>(path: &str, entries: Vec<(&'a String, &'a V)>, found: &mut Vec<(String, &'a V)>) {
    for (key, value) in entries {
        let name = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value.entries() {
            Some(inner) => collect(&name, inner, found),
            None => found.push((name, value)),
        }
    }
}
