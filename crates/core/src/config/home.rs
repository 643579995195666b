//! `~` at the start of a path in the settings. No shell has seen these texts, so it is replaced here, for all of
//! them alike. Reads no environment: the home folder comes in.

use super::Settings;

impl Settings {
    /// Replaces `~` and `~/…` by the home folder in every setting that is a path or a program.
    pub fn expand_home(&mut self, home: &str) {
        let whole_paths = [
            &mut self.workspace.root,
            &mut self.prompt.template,
            &mut self.lessons.folder,
            &mut self.land.pulls.template,
        ];
        for path in whole_paths.into_iter().flatten() {
            expand_home_path(path, home);
        }
        let sandbox = &mut self.sandbox;
        for path in [&mut sandbox.write, &mut sandbox.read, &mut sandbox.hide].into_iter().flatten()
        {
            expand_home_path(path, home);
        }
        if let Some(program) = self.workspace.editor.first_mut() {
            expand_home_path(program, home);
        }
        for agent in self.agents.values_mut() {
            // Of a command only the program: the rest are its own arguments.
            for program in agent.binary.iter_mut().chain(agent.command.first_mut()) {
                expand_home_path(program, home);
            }
        }
    }
}

fn expand_home_path(path: &mut String, home: &str) {
    if path == "~" {
        home.clone_into(path);
    } else if let Some(rest) = path.strip_prefix("~/") {
        *path = format!("{}/{rest}", home.trim_end_matches('/'));
    }
}

#[cfg(test)]
mod tests {
    use crate::config::layers::{SettingLayer, resolve_settings};

    #[test]
    fn every_path_setting_knows_the_home_folder() {
        let text = "[workspace]\nroot = \"~/.worktrees/x\"\n[prompt]\ntemplate = \"~/p.md\"\n\
            [lessons]\nfolder = \"~\"\n[land]\ntemplate = \"~/pr.md\"\n\
            [sandbox]\nwrite = [\"~/w\"]\nread = [\"~/r\"]\nhide = [\"~/h\", \"a~/b\"]\n\
            [agents.mine]\nkind = \"command\"\ncommand = [\"~/bin/agent\", \"~/as-typed\"]\n\
            [agents.claude]\nbinary = \"~/claude\"\n";
        let mut settings =
            resolve_settings(&[SettingLayer::from_project_file("mainstem.toml", text)])
                .expect("valid settings")
                .settings;
        settings.expand_home("/home/me/");
        assert_eq!(settings.workspace.root.as_deref(), Some("/home/me/.worktrees/x"));
        assert_eq!(settings.prompt.template.as_deref(), Some("/home/me/p.md"));
        assert_eq!(settings.lessons.folder.as_deref(), Some("/home/me/"));
        assert_eq!(settings.land.pulls.template.as_deref(), Some("/home/me/pr.md"));
        assert_eq!(settings.sandbox.write, ["/home/me/w"]);
        assert_eq!(settings.sandbox.read, ["/home/me/r"]);
        assert_eq!(settings.sandbox.hide, ["/home/me/h", "a~/b"]);
        assert_eq!(settings.agents["mine"].command, ["/home/me/bin/agent", "~/as-typed"]);
        assert_eq!(settings.agents["claude"].binary.as_deref(), Some("/home/me/claude"));
    }
}
