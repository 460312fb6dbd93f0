//! Processor time and memory of a child and its descendants, from `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::process::Process;

/// The processes of one name in a child's group, such as `workerd` below the Node program that started it.
#[derive(Debug, Clone)]
pub struct Usage {
    pids: Vec<u32>,
}

impl Usage {
    /// Finds the present processes called `program` in the group of `process`; at least one.
    pub fn of(process: &Process, program: &str) -> Result<Self> {
        let mut stats = processes()?;
        stats.retain(|stat| stat.name == program && stat.group == process.id());
        ensure!(!stats.is_empty(), "{process:?} runs no {program}");
        Ok(Self { pids: stats.iter().map(|stat| stat.pid).collect() })
    }

    /// Returns the processor time so far, in user and kernel mode, in steps of a clock tick, usually 10 ms.
    pub fn cpu(&self) -> Result<Duration> {
        let mut ticks = 0;
        for pid in &self.pids {
            ticks += Stat::parse(&stat_file(*pid)?)?.ticks;
        }
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Begins to measure memory: resets the peak to the present resident size.
    pub fn memory_from_here(&self) -> Result<Memory> {
        for pid in &self.pids {
            // proc(5): 5 resets the peak resident set size.
            fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
        }
        Ok(Memory {
            usage: self.clone(),
            resident: self.status("VmRSS:")?,
            of_files: self.status("RssFile:")?,
        })
    }

    fn status(&self, field: &str) -> Result<u64> {
        let mut bytes = 0;
        for pid in &self.pids {
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
            let kib: u64 = line.trim().trim_end_matches(" kB").parse().with_context(|| line.to_owned())?;
            bytes += kib * 1024;
        }
        Ok(bytes)
    }
}

#[derive(Debug)]
pub struct Memory {
    usage: Usage,
    resident: u64,
    /// Resident pages of programs and libraries, which are loaded on first use.
    of_files: u64,
}

impl Memory {
    /// Returns the peak's bytes above the first resident size, less the file pages loaded since.
    pub fn grown(&self) -> Result<u64> {
        let of_files = self.usage.status("RssFile:")?.saturating_sub(self.of_files);
        Ok(self.usage.status("VmHWM:")?.saturating_sub(self.resident).saturating_sub(of_files))
    }
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug)]
struct Stat {
    pid: u32,
    name: String,
    is_zombie: bool,
    parent: u32,
    group: u32,
    /// Clock ticks in user and kernel mode.
    ticks: u64,
}

impl Stat {
    fn parse(stat: &str) -> Result<Self> {
        // The name is in parentheses and may hold any character, parentheses and spaces included.
        let (head, rest) = stat.rsplit_once(") ").context("no process name")?;
        let (pid, name) = head.split_once(" (").context("no process name")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        // Fields are numbered as in proc(5), from 1; `rest` begins with field 3.
        let field = |number: usize| fields.get(number - 3).with_context(|| format!("no field {number}"));
        Ok(Self {
            pid: pid.parse()?,
            name: name.to_owned(),
            is_zombie: *field(3)? == "Z",
            parent: field(4)?.parse()?,
            group: field(5)?.parse()?,
            ticks: field(14)?.parse::<u64>()? + field(15)?.parse::<u64>()?,
        })
    }
}

fn stat_file(pid: u32) -> std::io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/stat"))
}

fn processes() -> Result<Vec<Stat>> {
    let pids = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A process that has ended meanwhile has no file.
    pids.filter_map(|pid| stat_file(pid).ok()).map(|stat| Stat::parse(&stat)).collect()
}

/// Returns whether a process runs; a zombie does not.
pub fn is_alive(pid: u32) -> bool {
    stat_file(pid).is_ok_and(|stat| Stat::parse(&stat).is_ok_and(|stat| !stat.is_zombie))
}

/// Returns the running processes below `ancestor`.
pub fn descendants(ancestor: u32) -> Result<BTreeSet<u32>> {
    let mut processes = processes()?;
    processes.retain(|stat| !stat.is_zombie);
    let (mut found, mut parents) = (BTreeSet::new(), BTreeSet::from([ancestor]));
    while !parents.is_empty() {
        parents =
            processes.iter().filter(|stat| parents.contains(&stat.parent)).map(|stat| stat.pid).collect();
        found.extend(&parents);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Spawn;

    const WAIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_busy_grandchild_is_measured_and_its_starter_is_not() {
        // Half a second of work for `busy) (bee`, a copy of the shell below a shell that waits; and, after a
        // line in a FIFO, 32 MB in a variable. A process's name may hold anything.
        let script = r#"cp /bin/sh "$0/busy) (bee"; mkfifo "$0/go"; "$0/busy) (bee" -c 'while [ $(cut -d" " -f15 /proc/$$/stat) -lt 50 ]; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; done; echo done; read -r _ < "$0/go"; x=$(head -c 32000000 /dev/zero | tr "\0" x); echo taken; sleep 600' "$0" & wait"#;
        let spawn = Spawn::new("family", "sh");
        let scratch = spawn.scratch().to_owned();
        let mut process = spawn.arg("-c").arg(script).arg(&scratch).start().unwrap();
        process.until("done", WAIT, async |log| log.contains("done").then_some(())).await.unwrap();
        let busy = Usage::of(&process, "busy) (bee").unwrap();
        assert!(busy.cpu().unwrap() >= Duration::from_millis(500), "{:?}", busy.cpu());
        assert!(Usage::of(&process, "nothing").is_err());

        let memory = busy.memory_from_here().unwrap();
        assert!(memory.grown().unwrap() < 8_000_000, "{:?}", memory.grown());
        fs::write(scratch.join("go"), "\n").unwrap();
        process.until("taken", WAIT, async |log| log.contains("taken").then_some(())).await.unwrap();
        let grown = memory.grown().unwrap();
        assert!((32_000_000..160_000_000).contains(&grown), "{grown}");
    }
}
