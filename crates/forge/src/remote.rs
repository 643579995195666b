//! Which forge, which repository: read from the address that git pushes to.

/// A repository on a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeRepository {
    /// The forge's host name.
    pub host: String,
    pub owner: String,
    pub name: String,
}

impl ForgeRepository {
    /// From an address as `git remote get-url` prints it; none if it names no repository on a forge.
    pub fn from_url(url: &str) -> Option<Self> {
        let url = url.trim();
        let (host, path) = match url.split_once("://") {
            Some(("https" | "http" | "ssh" | "git" | "git+ssh", rest)) => rest.split_once('/')?,
            Some(_) => return None,
            // user@host:path, but not a path of this machine
            None => url.split_once(':').filter(|(host, _)| !host.contains('/'))?,
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let host = host.split(':').next().filter(|host| !host.is_empty())?;
        Self::from_path(host, path)
    }

    pub fn from_path(host: &str, path: &str) -> Option<Self> {
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let (owner, name) = path.split_once('/')?;
        let sound = |part: &str| {
            !part.is_empty()
                && part != ".."
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        (sound(owner) && sound(name)).then(|| Self {
            host: host.to_owned(),
            owner: owner.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Where its forge's API is.
    pub fn api_url(&self) -> String {
        match self.host.as_str() {
            "github.com" | "ssh.github.com" | "www.github.com" => {
                "https://api.github.com".to_owned()
            }
            host => format!("https://{host}/api/v3"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_host_owner_and_repository() {
        let expected = |host: &str| ForgeRepository::from_path(host, "some-one/re.po");
        for (url, host) in [
            ("https://github.com/some-one/re.po.git", "github.com"),
            ("https://x-access-token:abc@github.com/some-one/re.po", "github.com"),
            ("git@github.com:some-one/re.po.git", "github.com"),
            ("ssh://git@ssh.github.com:443/some-one/re.po.git\n", "ssh.github.com"),
            ("https://git.example.com:8443/some-one/re.po/", "git.example.com"),
        ] {
            assert_eq!(ForgeRepository::from_url(url), expected(host), "{url}");
            assert!(expected(host).is_some());
        }
        for url in
            ["/srv/git/repo.git", "../repo", "file:///srv/o/r", "https://github.com/only", ""]
        {
            assert_eq!(ForgeRepository::from_url(url), None, "{url}");
        }
    }

    #[test]
    fn the_api_is_beside_the_site_and_elsewhere_for_the_public_one() {
        let api = |host| ForgeRepository::from_path(host, "o/r").map(|place| place.api_url());
        assert_eq!(api("github.com").as_deref(), Some("https://api.github.com"));
        assert_eq!(api("git.example.com").as_deref(), Some("https://git.example.com/api/v3"));
    }
}
