//! The HTML page: one file with styles, libraries, viewer and data, which needs no network.
//!
//! Scripts and styles are allowed by their hashes only, so text from a run folder can never run. The data is JSON without
//! `<`, `>` and `&`, and the viewer inserts it as text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::{Replay, pack};

const THREE: &str = include_str!(env!("EPO_THREE"));
const UPLOT: &str = include_str!(concat!(env!("EPO_UPLOT"), "/uplot.js"));
const UPLOT_STYLE: &str = include_str!(concat!(env!("EPO_UPLOT"), "/uplot.css"));
const STYLE: &str = include_str!("../viewer/viewer.css");
const VIEWER: &str = include_str!("../viewer/viewer.js");
const BODY: &str = include_str!("../viewer/body.html");
/// The licences of the libraries that every page contains. Each page shows them.
pub const LICENCES: &str = include_str!("../viewer/licences.txt");

/// The content security policy of a page: only its own scripts and styles, by their hashes, and nothing from a network.
///
/// The page contains it as a `meta` element. A server that sends its own policy must send this one
/// with the page.
pub fn content_security_policy() -> String {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; script-src {} {} {}; style-src {} {}; img-src data: blob:; base-uri 'none'; \
         form-action 'none'",
        hash(UPLOT),
        hash(THREE),
        hash(VIEWER),
        hash(UPLOT_STYLE),
        hash(STYLE)
    )
}

impl Replay {
    /// Returns the replay as one HTML page that needs no network.
    pub fn to_html(&self) -> String {
        let first = self.episodes.iter().flatten().next();
        let title =
            first.map_or("Replay".to_owned(), |p| format!("{} on {}: replay", p.algo, p.recording.task));
        let data = pack::document(self).to_string();
        let data = data.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
        let (title, policy) = (escape(&title), content_security_policy());
        let body = BODY.replace("LICENCES", &escape(LICENCES));
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>{UPLOT_STYLE}</style>\n<style>{STYLE}</style></head>\n<body>\n{body}\n\
             <script type=\"application/json\" id=\"data\">{data}</script>\n\
             <script>{UPLOT}</script>\n<script>{THREE}</script>\n<script>{VIEWER}</script>\n</body></html>\n"
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if a library contains the end tag of a script: it would end the script of
    /// the page too early.
    #[test]
    fn nothing_inside_a_script_or_a_style_ends_it() {
        for text in [THREE, UPLOT, VIEWER] {
            let text = text.to_lowercase();
            assert!(!text.contains("</script") && !text.contains("<!--") && !text.contains("\nimport "));
        }
        for text in [UPLOT_STYLE, STYLE] {
            assert!(!text.to_lowercase().contains("</style"));
        }
    }

    /// This test fails if a library of another version comes with the licence of the old one.
    #[test]
    fn the_page_has_the_licences_of_its_libraries() {
        assert!(THREE.contains("Copyright 2010-2025 Three.js Authors") && THREE.contains("REVISION"));
        assert!(UPLOT.contains("MIT Licensed") && UPLOT.contains("(v1.6.16)"));
        assert!(LICENCES.contains("uPlot 1.6.16 ") && LICENCES.contains("2010-2025 three.js authors"));
        assert!(LICENCES.contains("this permission notice shall be included in"));
        let page = Replay { episodes: Vec::new(), map: None, notes: Vec::new() }.to_html();
        assert!(page.contains(&format!("<pre id=\"licences\">{}", escape(LICENCES))), "{page}");
    }
}
