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
    /// Account that is charged. Default: that of the user.
    pub account: Option<String>,
    /// Number of runs of a task. They share its cores. Default: 1.
    pub pack: u32,
    /// Maximum number of tasks that run at the same time. Default: no limit.
    pub at_once: Option<u32>,
    /// Maximum number of times that a run is started again after a time limit, a preemption or the loss of its task.
    /// Default: 20.
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

    /// Returns the nodes that the user excludes with a further option of `sbatch`.
    pub(super) fn excluded(&self) -> Option<&str> {
        let nodes =
            self.options.iter().rev().find_map(|o| o.strip_prefix("--exclude").or(o.strip_prefix("-x")));
        nodes.map(|nodes| nodes.trim_start_matches(['=', ' ']))
    }

    /// Returns an error for values that would break the lines of the script.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let given = [&self.partition, &self.time, &self.mem, &self.account];
        // Slurm treats text after `#` as a comment, and text after a space as another option
        let cut = |text: &str| text.is_empty() || text.contains(|c: char| c.is_control() || c == '#');
        let values = given.into_iter().flatten().filter(|text| cut(text) || text.contains(' '));
        if let Some(text) = values.chain(self.options.iter().filter(|text| cut(text))).next() {
            let why = format!("`{}` is not a value of a Slurm option", text.escape_debug());
            return Err(EngineError::Usage(why));
        }
        let limit = self.time.as_deref().and_then(seconds);
        if let Some(limit) = limit.filter(|limit| *limit <= u64::from(self.grace)) {
            return Err(EngineError::Usage(format!(
                "slurm.grace is {} s, but the time limit of a task is only {limit} s: the runs would be asked to save at \
                 once. Raise --time, or lower slurm.grace in the sweep file",
                self.grace
            )));
        }
        match self.options.iter().find(|option| !option.starts_with('-')) {
            Some(option) => {
                Err(EngineError::Usage(format!("`{option}` is not an sbatch option: add a leading dash")))
            }
            None => Ok(()),
        }
    }
}

/// Returns the seconds of a time limit in one of Slurm's forms: `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`; `None`
/// for other texts, which Slurm judges.
fn seconds(time: &str) -> Option<u64> {
    let (days, rest) = time.split_once('-').map_or((None, time), |(days, rest)| (Some(days), rest));
    let parts: Vec<u64> = rest.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = match (days, &parts[..]) {
        (None, [m]) => [0, *m, 0],
        (None, [m, s]) => [0, *m, *s],
        (Some(_), [h]) => [*h, 0, 0],
        (Some(_), [h, m]) => [*h, *m, 0],
        (_, [h, m, s]) => [*h, *m, *s],
        _ => return None,
    };
    let days: u64 = days.map_or(Some(0), |days| days.parse().ok())?;
    let hours = days.checked_mul(24)?.checked_add(hours)?;
    hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60)?.checked_add(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a run would be asked to save as soon as it starts.
    #[test]
    fn a_time_limit_must_be_longer_than_the_grace() {
        for (time, want) in [
            ("2", Some(120)),
            ("1:30", Some(90)),
            ("1:00:01", Some(3601)),
            ("1-2", Some(93_600)),
            ("1-0:1", Some(86_460)),
            ("1-0:0:9", Some(86_409)),
            ("UNLIMITED", None),
        ] {
            assert_eq!(seconds(time), want, "{time}");
        }
        let with = |time: &str| Resources { time: Some(time.into()), grace: 120, ..Resources::default() };
        assert!(with("2:01").check().is_ok() && with("INFINITE").check().is_ok());
        let said = with("2").check().unwrap_err().to_string();
        assert!(said.contains("slurm.grace is 120 s") && said.contains("120 s: the runs"), "{said}");
    }

    /// This test fails if Slurm would get only a part of a value.
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
