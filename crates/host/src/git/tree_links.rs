//! Where the symbolic links of a tree lead, as a kernel would follow them: through other links, and with
//! `..` counted from where one really is.

use std::collections::BTreeMap;

/// A kernel gives up after so many.
const STEPS_MAX: usize = 40;

/// The links of one tree.
#[derive(Debug, Default)]
pub(super) struct TreeLinks(BTreeMap<Vec<u8>, Vec<u8>>);

impl TreeLinks {
    pub(super) fn add(&mut self, name: &[u8], target: Vec<u8>) {
        self.0.insert(name.to_vec(), target);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.0.iter()
    }

    /// The links on the way, itself first, if following `name` leads out of the tree.
    pub(super) fn find_escaping_links(&self, name: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut at: Vec<&[u8]> = Vec::new();
        // What is still to be gone through, the next part last.
        let mut open: Vec<&[u8]> = name.split(|&b| b == b'/').rev().collect();
        let mut way: Vec<Vec<u8>> = Vec::new();
        while let Some(part) = open.pop() {
            match part {
                b"" | b"." => continue,
                b".." => {
                    if at.pop().is_none() {
                        return Some(way);
                    }
                    continue;
                }
                part => at.push(part),
            }
            let here = at.join(&b'/');
            let Some(target) = self.0.get(&here) else { continue };
            if way.len() >= STEPS_MAX {
                return None;
            }
            way.push(here);
            if target.first() == Some(&b'/') {
                return Some(way);
            }
            at.pop();
            open.extend(target.split(|&b| b == b'/').rev());
        }
        None
    }
}

/// Where a path leads inside a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Way {
    /// Every prefix that was looked at: a link among them would change the way.
    pub(super) seen: Vec<Vec<u8>>,
    /// The links that were followed.
    pub(super) links: Vec<Vec<u8>>,
    /// What it ends at; none if it leads out of the tree or in a circle.
    pub(super) end: Option<Vec<u8>>,
}

impl TreeLinks {
    /// Follows a path as a kernel would, by the links that are known.
    pub(super) fn follow(&self, name: &[u8]) -> Way {
        let mut way = Way::default();
        let mut at: Vec<&[u8]> = Vec::new();
        let mut open: Vec<&[u8]> = name.split(|&b| b == b'/').rev().collect();
        while let Some(part) = open.pop() {
            match part {
                b"" | b"." => continue,
                b".." => {
                    if at.pop().is_none() {
                        return way;
                    }
                    continue;
                }
                part => at.push(part),
            }
            let here = at.join(&b'/');
            way.seen.push(here.clone());
            let Some(target) = self.0.get(&here) else { continue };
            way.links.push(here);
            if way.links.len() > STEPS_MAX || target.first() == Some(&b'/') {
                return way;
            }
            at.pop();
            open.extend(target.split(|&b| b == b'/').rev());
        }
        way.end = Some(at.join(&b'/'));
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads_out(links: &[(&str, &str)], name: &str) -> bool {
        let mut all = TreeLinks::default();
        for (name, target) in links {
            all.add(name.as_bytes(), target.as_bytes().to_vec());
        }
        all.find_escaping_links(name.as_bytes()).is_some()
    }

    #[test]
    fn links_are_followed_and_not_read_by_the_letter() {
        for (links, name, out) in [
            (&[("l", "a/../b")][..], "l", false),
            (&[("l", "../b")], "l", true),
            (&[("a/l", "../b")], "a/l", false),
            (&[("a/l", "../../b")], "a/l", true),
            (&[("l", "/etc/passwd")], "l", true),
            // By the letter this stays inside.
            (&[("d", "."), ("l", "d/../home/x")], "l", true),
            (&[("a/b/d", "../.."), ("l", "a/b/d/../x")], "l", true),
            (&[("a/b/d", ".."), ("l", "a/b/d/../x")], "l", false),
            (&[("out", "../x"), ("l", "out")], "l", true),
            (&[("l", "m"), ("m", "l")], "l", false),
        ] {
            assert_eq!(leads_out(links, name), out, "{links:?}");
        }
    }

    #[test]
    fn the_way_names_every_link_that_was_passed() {
        let mut all = TreeLinks::default();
        all.add(b"d", b".".to_vec());
        all.add(b"l", b"d/../x".to_vec());
        assert_eq!(all.find_escaping_links(b"l"), Some(vec![b"l".to_vec(), b"d".to_vec()]));
    }

    #[test]
    fn a_path_is_followed_through_folders_and_files_that_are_links() {
        let mut links = TreeLinks::default();
        links.add(b"ci", b"scripts".to_vec());
        links.add(b"scripts/run.sh", b"../lib/real.sh".to_vec());
        links.add(b"out", b"/etc/passwd".to_vec());
        links.add(b"loop", b"loop".to_vec());
        let way = links.follow(b"ci/run.sh");
        assert_eq!(way.end.as_deref(), Some(b"lib/real.sh".as_slice()));
        assert_eq!(way.links, [b"ci".to_vec(), b"scripts/run.sh".to_vec()]);
        assert_eq!(links.follow(b"plain.txt").links, Vec::<Vec<u8>>::new());
        assert_eq!(links.follow(b"out").end, None);
        assert_eq!(links.follow(b"loop").end, None);
    }
}
