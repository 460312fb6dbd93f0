//! Files beside an installed program, made from its command line: completions and manual pages.

use std::{io, path::PathBuf};

use clap::{Command, Subcommand};
use clap_complete::Shell;

/// The commands that make them, to flatten into a program's own.
#[derive(Debug, Subcommand)]
pub enum ShellFiles {
    /// Print the completions of a shell
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// The directory.
        directory: PathBuf,
    },
}

impl ShellFiles {
    /// Makes the files of a program with this command line, and returns the text to print. Errors: the
    /// directory of manual pages cannot be written.
    pub fn make(&self, mut program: Command) -> io::Result<String> {
        let mut text = Vec::new();
        match self {
            Self::Completions { shell } => {
                let name = program.get_name().to_owned();
                clap_complete::generate(*shell, &mut program, name, &mut text);
            }
            Self::Man { directory } => {
                std::fs::create_dir_all(directory)
                    .and_then(|()| clap_mangen::generate_to(program, directory))
                    .map_err(|error| {
                        io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
                    })?;
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_completions_and_a_page_for_each_command() {
        let program = || ShellFiles::augment_subcommands(Command::new("program")).about("What it is for");
        for (shell, start) in
            [(Shell::Bash, "_program()"), (Shell::Zsh, "#compdef program"), (Shell::Fish, "#")]
        {
            let text = ShellFiles::Completions { shell }.make(program()).unwrap();
            assert!(text.starts_with(start) && text.contains("completions"), "{shell}: {text}");
        }
        let directory = std::env::temp_dir().join(format!("manual-pages-{}", std::process::id()));
        let printed = ShellFiles::Man { directory: directory.clone() }.make(program()).unwrap();
        assert_eq!(printed, "");
        for (page, word) in [("program.1", "What it is for"), ("program-man.1", "manual pages")] {
            assert!(std::fs::read_to_string(directory.join(page)).unwrap().contains(word), "{page}");
        }
        std::fs::remove_dir_all(directory).unwrap();
        let failed = ShellFiles::Man { directory: "/dev/null/pages".into() }.make(program()).unwrap_err();
        assert!(failed.to_string().starts_with("/dev/null/pages: "), "{failed}");
    }
}
