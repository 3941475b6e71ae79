//! The resources that tasks request from Slurm: the table `[slurm]` of a sweep file.

use toml::Table;

use crate::engine::{EngineError, Key, read_table};

/// The resources that tasks request from Slurm. The table `[slurm]` of a sweep file has these keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Partition. Default: that of the site.
    pub partition: Option<String>,
    /// Time limit of a task, in Slurm's form such as `4:00:00`. Default: that of the partition.
    pub time: Option<String>,
    /// Number of cores of a task. Default: 1.
    pub cpus: u32,
    /// Memory of a task, such as `2G`. Default: that of the site.
    pub mem: Option<String>,
    /// Account that pays. Default: that of the user.
    pub account: Option<String>,
    /// Number of runs of a task. They share its cores. Default: 1.
    pub pack: u32,
    /// Maximum number of tasks that run at the same time. Default: no limit.
    pub at_once: Option<u32>,
    /// Number of times that a task goes back to the queue after a time limit or a preemption. Default: 20.
    pub retries: u32,
    /// Seconds before the time limit at which a run is asked to save. It must be longer than an epoch. Default:
    /// 120.
    pub grace: u32,
    /// Shell commands that the script runs first, such as `module load …`. Default: none.
    pub setup: String,
    /// Further options of `sbatch`, such as `--qos=high`. Default: none.
    pub options: Vec<String>,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            partition: None,
            time: None,
            cpus: 1,
            mem: None,
            account: None,
            pack: 1,
            at_once: None,
            retries: 20,
            grace: 120,
            setup: String::new(),
            options: Vec::new(),
        }
    }
}

impl Resources {
    /// Keys of the table `[slurm]`.
    const KEYS: &[Key<Self>] = &[
        ("partition", |to, value| value.text().map(|v| to.partition = Some(v))),
        ("time", |to, value| value.text().map(|v| to.time = Some(v))),
        ("cpus", |to, value| value.number(1).map(|v| to.cpus = v)),
        ("mem", |to, value| value.text().map(|v| to.mem = Some(v))),
        ("account", |to, value| value.text().map(|v| to.account = Some(v))),
        ("pack", |to, value| value.number(1).map(|v| to.pack = v)),
        ("at_once", |to, value| value.number(1).map(|v| to.at_once = Some(v))),
        ("retries", |to, value| value.number(0).map(|v| to.retries = v)),
        ("grace", |to, value| value.number(1).map(|v| to.grace = v)),
        ("setup", |to, value| value.text().map(|v| to.setup = v)),
        ("options", |to, value| value.texts().map(|v| to.options = v)),
    ];

    /// Reads the table `[slurm]` of a sweep file.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if a key does not exist or has a wrong value.
    pub fn from_table(table: &Table) -> Result<Self, EngineError> {
        read_table("slurm", Self::KEYS, table)
    }

    /// Returns an error for values that would break the lines of the script.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let given = [&self.partition, &self.time, &self.mem, &self.account];
        // Slurm takes what follows `#` for a comment, and what follows a space for another option
        let cut = |text: &str| text.is_empty() || text.contains(|c: char| c.is_control() || c == '#');
        let values = given.into_iter().flatten().filter(|text| cut(text) || text.contains(' '));
        if let Some(text) = values.chain(self.options.iter().filter(|text| cut(text))).next() {
            let why = format!("`{}` is not a value of a Slurm option", text.escape_debug());
            return Err(EngineError::Usage(why));
        }
        match self.options.iter().find(|option| !option.starts_with('-')) {
            Some(option) => {
                Err(EngineError::Usage(format!("`{option}` is not an sbatch option: add a leading dash")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if Slurm would get a part of a value only.
    #[test]
    fn a_value_that_slurm_would_cut_is_refused() {
        let with = |partition: &str, option: &str| Resources {
            partition: Some(partition.into()),
            options: vec![option.into()],
            ..Resources::default()
        };
        assert!(with("main", "-p gpu").check().is_ok());
        for wrong in [with("main foo", "-p gpu"), with("a#b", "-p gpu"), with("main", "--comment=a#b")] {
            let said = wrong.check().unwrap_err().to_string();
            assert!(said.contains("is not a value of a Slurm option"), "{said}");
        }
    }

    #[test]
    fn resources_are_read_from_the_sweep_file_and_mistakes_are_named() {
        let read = |text: &str| Resources::from_table(&text.parse().unwrap());
        let all = "partition = \"gpu\"\ntime = \"4:00:00\"\ncpus = 2\nmem = \"2G\"\naccount = \"lab\"\npack = 4\n\
                   at_once = 50\nretries = 3\ngrace = 300\nsetup = \"module load gcc\"\noptions = [\"--qos=high\"]\n";
        let want = Resources {
            partition: Some("gpu".into()),
            time: Some("4:00:00".into()),
            cpus: 2,
            mem: Some("2G".into()),
            account: Some("lab".into()),
            pack: 4,
            at_once: Some(50),
            retries: 3,
            grace: 300,
            setup: "module load gcc".into(),
            options: vec!["--qos=high".into()],
        };
        assert_eq!(read(all).unwrap(), want);
        assert_eq!(read("").unwrap(), Resources::default());
        for (text, part) in [
            ("tiem = \"1\"", "did you mean `slurm.time`"),
            ("cpus = 0", "a whole number of at least 1"),
            ("cpus = \"two\"", "a whole number"),
            ("time = 60", "a text in quotes"),
            ("options = \"--qos=high\"", "a list of texts"),
        ] {
            let said = read(text).unwrap_err().to_string();
            assert!(said.contains(part), "{text}: {said}");
        }
    }
}
