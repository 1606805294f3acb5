//! The addresses that may be called: the endpoint's own, and hosts the settings list for its redirects.

use reqwest::Url;
use reqwest::header::HeaderValue;

use super::HubError;
use super::name::{HubId, Revision};

/// The hub's endpoint with the hosts that it may send us to.
#[derive(Debug, Clone)]
pub struct Endpoint {
    url: Url,
    redirect_hosts: Vec<String>,
}

impl Endpoint {
    /// Read an endpoint such as `https://huggingface.co`.
    ///
    /// # Errors
    /// A sentence when it is no plain http or https address.
    pub fn read(text: &str, redirect_hosts: &[String]) -> Result<Self, String> {
        let url =
            Url::parse(text.trim()).map_err(|error| format!("the hub's endpoint is no URL: {error}"))?;
        let plain = matches!(url.scheme(), "http" | "https")
            && url.host_str().is_some()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !plain {
            return Err("the hub's endpoint is http:// or https://, a host and perhaps a path".to_owned());
        }
        Ok(Self { url, redirect_hosts: redirect_hosts.iter().map(|h| h.to_ascii_lowercase()).collect() })
    }

    /// Where a file of a model lies. The parts are one segment each; what is special in them is encoded.
    ///
    /// # Errors
    /// [`HubError::Internal`] when the endpoint cannot have a path, which [`Self::read`] rules out.
    pub fn file(&self, id: &HubId, revision: &Revision, file: &str) -> Result<Url, HubError> {
        let mut url = self.url.clone();
        url.path_segments_mut()
            .map_err(|()| HubError::Internal("the hub's endpoint cannot have a path".to_owned()))?
            .pop_if_empty()
            .extend([id.org(), id.name(), "resolve", revision.as_str(), file]);
        Ok(url)
    }

    /// Where a redirect leads, when it may be followed: to the endpoint itself, or by https on its usual
    /// port to a listed host.
    ///
    /// # Errors
    /// [`HubError::RedirectRefused`] with the target's host only: the rest may hold a signature.
    pub fn follow(&self, from: &Url, location: Option<&HeaderValue>) -> Result<Url, HubError> {
        let location = location
            .and_then(|v| v.to_str().ok())
            .ok_or_else(|| HubError::RedirectRefused("nowhere".to_owned()))?;
        let to = from
            .join(location)
            .map_err(|_| HubError::RedirectRefused("an address that cannot be read".to_owned()))?;
        let clean = to.username().is_empty() && to.password().is_none();
        if clean && (self.is_home(&to) || self.is_listed(&to)) {
            return Ok(to);
        }
        Err(HubError::RedirectRefused(format!("{}://{}", to.scheme(), to.host_str().unwrap_or_default())))
    }

    /// The endpoint's own scheme, host and port: the only place that sees the token.
    #[must_use]
    pub fn is_home(&self, url: &Url) -> bool {
        url.origin() == self.url.origin()
    }

    fn is_listed(&self, url: &Url) -> bool {
        url.scheme() == "https"
            && url.port().is_none()
            && url.domain().is_some_and(|host| self.redirect_hosts.iter().any(|h| h == host))
    }

    /// True when the endpoint is this machine, or is reached by https: a token may travel.
    #[must_use]
    pub fn keeps_secrets(&self) -> bool {
        self.url.scheme() == "https" || self.is_loopback()
    }

    /// True for this machine: no proxy lies between.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = self.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// The model that an address on the endpoint belongs to, for renamed ones.
    #[must_use]
    pub fn model_of(&self, url: &Url) -> Option<HubId> {
        let path = url.path().strip_prefix(self.url.path().trim_end_matches('/'))?;
        let mut parts = path.trim_start_matches('/').split('/');
        let (org, name) = (parts.next()?, parts.next()?);
        (parts.next()? == "resolve").then(|| HubId::read(&format!("{org}/{name}")))?
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint::read("https://huggingface.co", &["cdn-lfs.hf.co".to_owned()]).expect("valid")
    }

    fn start() -> Url {
        let id = HubId::read("a/b").expect("valid");
        endpoint().file(&id, &Revision::read("refs/pr/1").expect("valid"), "config.json").expect("has a path")
    }

    #[test]
    fn a_file_lies_where_the_hub_has_it() {
        assert_eq!(start().as_str(), "https://huggingface.co/a/b/resolve/refs%2Fpr%2F1/config.json");
        let mirror = Endpoint::read("http://mirror.local:8080/hf/", &[]).expect("valid");
        let id = HubId::read("a/b").expect("valid");
        let url =
            mirror.file(&id, &Revision::read("main").expect("valid"), "config.json").expect("has a path");
        assert_eq!(url.as_str(), "http://mirror.local:8080/hf/a/b/resolve/main/config.json");
        assert_eq!(mirror.model_of(&url), Some(id));
    }

    #[test]
    fn endpoints_that_hide_something_are_refused() {
        for text in
            ["", "ftp://x", "file:///etc/passwd", "https://u:p@x", "https://x?q", "https://x#f", "data:x"]
        {
            assert!(Endpoint::read(text, &[]).is_err(), "{text}");
        }
    }

    #[test]
    fn redirects_stay_at_home_or_go_to_listed_hosts() {
        for (to, followed) in [
            ("/c/d/resolve/main/config.json", Some("https://huggingface.co/c/d/resolve/main/config.json")),
            ("https://cdn-lfs.hf.co/x?Signature=s", Some("https://cdn-lfs.hf.co/x?Signature=s")),
            ("https://CDN-LFS.hf.co/x", Some("https://cdn-lfs.hf.co/x")),
            ("https://cdn-lfs.hf.co:443/x", Some("https://cdn-lfs.hf.co/x")),
            ("http://cdn-lfs.hf.co/x", None),
            ("https://cdn-lfs.hf.co:8443/x", None),
            ("https://cdn-lfs.hf.co./x", None),
            ("https://u@cdn-lfs.hf.co/x", None),
            ("https://cdn-lfs.hf.co@evil.example/x", None),
            ("https://huggingface.co:22/x", None),
            ("http://huggingface.co/x", None),
            ("https://u:p@huggingface.co/x", None),
            ("//evil.example/x", None),
            ("\\\\evil.example/x", None),
            ("https://evil.example/huggingface.co", None),
            ("http://169.254.169.254/latest/meta-data", None),
            ("http://[::1]/x", None),
            ("http://[::ffff:127.0.0.1]:5432/x", None),
            ("http://127.1/x", None),
            ("http://2130706433/x", None),
            ("file:///etc/passwd", None),
            ("gopher://huggingface.co/x", None),
        ] {
            let value = HeaderValue::from_str(to).expect("a header");
            let got = endpoint().follow(&start(), Some(&value));
            assert_eq!(got.as_ref().map(Url::as_str).ok(), followed, "{to}");
        }
        assert!(endpoint().follow(&start(), None).is_err());
    }

    #[test]
    fn a_refused_redirect_does_not_tell_the_signature() {
        let value = HeaderValue::from_static("https://evil.example/x?Signature=secret");
        let error = endpoint().follow(&start(), Some(&value)).expect_err("refused").to_string();
        assert!(error.contains("evil.example") && !error.contains("secret"), "{error}");
    }
}
