//! Routes, headers and connections.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Extension, Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use epo_report::policies::{self, Policies};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::Replays;
use crate::answer::{self, Sending};
use crate::curves::{self, CurvesQuery};
use crate::episodes::{Episode, Episodes};
use crate::folder::Folder;
use crate::guard::{COOKIE, Guard};
use crate::store::{Store, read};
use crate::view::{self, Filter, OverviewQuery, RunsQuery};

/// Maximum number of open connections. Further clients wait.
const MOST_CONNECTIONS: usize = 4000;
/// Time in which a client must send the head of a request.
const HEAD: Duration = Duration::from_secs(20);
/// Maximum number of answers that are computed at the same time.
const MOST_AT_ONCE: usize = 4;
/// Number of ports that are tried if the first is in use.
const PORTS: u16 = 50;
/// Maximum number of episodes in an answer.
const MOST_EPISODES: usize = 200;
/// Maximum number of runs whose episodes are searched for one answer.
const MOST_RUNS_SEARCHED: usize = 50;
/// Number of answers that are kept for clients that make the same request.
const KEPT: usize = 32;

/// Content security policy of the page. Scripts and styles come only from files of the dashboard,
/// never from the page itself, and nothing else is loaded.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Additional policy of a replay, which is one file with its scripts inside. In the sandbox it
/// belongs to no origin.
const SANDBOX: &str = "sandbox allow-scripts; frame-ancestors 'none'";

/// Folders to show, and the address to serve them on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Run folders, or folders that contain them.
    pub runs: Vec<PathBuf>,
    /// Address to listen on. Default: 127.0.0.1.
    pub bind: IpAddr,
    /// Port; 0 takes any free one. Default: 7070.
    pub port: u16,
    /// Text that every request must carry. Needed for any address but 127.0.0.1.
    pub token: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { runs: vec!["runs".into()], bind: Ipv4Addr::LOCALHOST.into(), port: 7070, token: None }
    }
}

/// Reason why the dashboard does not start.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// An address other than 127.0.0.1 is given without a token.
    #[error("--bind {0} needs a token, because only 127.0.0.1 is served without one: add --token TEXT")]
    NeedsToken(IpAddr),
    /// The token has a character that an address or a cookie cannot hold, or is empty.
    #[error("the token may hold only letters, digits, `-` and `_`, and at least one of them")]
    BadToken,
    /// No port can be taken.
    #[error("cannot listen on {address}")]
    Listen {
        /// The first address that was tried.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// State that all requests share.
struct App {
    store: Arc<Store>,
    guard: Guard,
    token: Option<String>,
    episodes: Episodes,
    replays: Option<Arc<dyn Replays>>,
    /// Limits the number of answers that are computed at the same time.
    work: Semaphore,
    /// Lets one replay be made at a time: it plays episodes, which takes a processor.
    replaying: Semaphore,
    /// Memory of the answers that are being sent.
    budget: Arc<Semaphore>,
    /// Distinguishes this process from earlier ones in ETags.
    start: u64,
    kept: Mutex<VecDeque<(u64, Bytes)>>,
}

/// A dashboard that has taken a port.
pub struct Dashboard {
    listener: std::net::TcpListener,
    address: SocketAddr,
    asked: u16,
    token: Option<String>,
    store: Arc<Store>,
    replays: Option<Arc<dyn Replays>>,
}

impl std::fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dashboard").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Dashboard {
    /// Takes a port: the given one, or the next free one if it is in use.
    pub fn bind(options: &Options, replays: Option<Arc<dyn Replays>>) -> Result<Self, DashboardError> {
        let token = options.token.clone();
        if options.bind != Ipv4Addr::LOCALHOST && token.is_none() {
            return Err(DashboardError::NeedsToken(options.bind));
        }
        let safe = |token: &String| {
            !token.is_empty() && token.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        };
        if !token.as_ref().is_none_or(safe) {
            return Err(DashboardError::BadToken);
        }
        let listener = listen(options.bind, options.port)?;
        let wrong = |source| DashboardError::Listen { address: (options.bind, options.port).into(), source };
        let address = listener.local_addr().map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let store = Arc::new(Store::new(options.runs.clone()));
        Ok(Self { listener, address, asked: options.port, token, store, replays })
    }

    /// Returns the port that was asked for, if it is in use and another was taken.
    pub fn port_in_use(&self) -> Option<u16> {
        (self.asked != 0 && self.asked != self.address.port()).then_some(self.asked)
    }

    /// Returns the address of the page, with the token if there is one. If the dashboard listens on all addresses, this
    /// is one that other machines can use.
    pub fn url(&self) -> String {
        let token = self.token.as_ref().map(|token| format!("?token={token}")).unwrap_or_default();
        let (ip, port) = (self.address.ip(), self.address.port());
        let host = match (ip.is_unspecified(), own_address(ip)) {
            (false, _) => self.address.to_string(),
            (true, Some(own)) => SocketAddr::new(own, port).to_string(),
            (true, None) => format!("{}:{port}", rustix::system::uname().nodename().to_string_lossy()),
        };
        format!("http://{host}/{token}")
    }

    /// Answers requests. Does not return unless the runtime cannot be made.
    pub fn serve(self) -> io::Result<()> {
        raise_limit_of_files();
        let follower = self.store.clone();
        std::thread::Builder::new().name("runs".into()).spawn(move || follower.follow())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(8)
            .enable_all()
            .build()?;
        let store = self.store.clone();
        let result = runtime.block_on(self.accept());
        store.stop();
        result
    }

    async fn accept(self) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let app = Arc::new(App {
            store: self.store,
            guard: Guard::new(self.address, self.token.clone()),
            token: self.token,
            episodes: Episodes::default(),
            replays: self.replays,
            work: Semaphore::new(MOST_AT_ONCE),
            replaying: Semaphore::new(1),
            budget: answer::budget(),
            start: start.as_nanos() as u64,
            kept: Mutex::default(),
        });
        let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let Ok(permit) = connections.clone().acquire_owned().await else { return Ok(()) };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(_) => {
                    // for example too many open files: wait until some are closed
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let sending = Sending::default();
            let service = TowerToHyperService::new(router(app.clone(), sending.clone()));
            tokio::spawn(async move {
                let _permit = permit;
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD)
                    .max_buf_size(64 << 10)
                    .serve_connection(TokioIo::new(stream), service);
                let mut connection = std::pin::pin!(connection);
                loop {
                    tokio::select! {
                        _ = connection.as_mut() => return,
                        () = tokio::time::sleep(answer::PATIENCE / 3) => {
                            if sending.is_overdue() {
                                return;
                            }
                        }
                    }
                }
            });
        }
    }
}

/// Returns the address of this machine on the network that leads to other machines; `None` if there is none.
fn own_address(unspecified: IpAddr) -> Option<IpAddr> {
    // connecting a UDP socket chooses a route and sends nothing; these addresses are reserved for documentation
    let other = if unspecified.is_ipv4() { "192.0.2.1" } else { "2001:db8::1" };
    let socket = std::net::UdpSocket::bind((unspecified, 0)).ok()?;
    socket.connect((other.parse::<IpAddr>().ok()?, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

fn listen(ip: IpAddr, port: u16) -> Result<std::net::TcpListener, DashboardError> {
    let last = if port == 0 { 0 } else { port.saturating_add(PORTS) };
    let mut first_error = None;
    for next in port..=last {
        match std::net::TcpListener::bind((ip, next)) {
            Ok(listener) => return Ok(listener),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => first_error = first_error.or(Some(e)),
            Err(source) => return Err(DashboardError::Listen { address: (ip, next).into(), source }),
        }
    }
    let source = first_error.unwrap_or_else(|| io::ErrorKind::AddrInUse.into());
    Err(DashboardError::Listen { address: (ip, port).into(), source })
}

/// Raises the limit on open files, and so on connections, to the maximum that the system allows.
fn raise_limit_of_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }); // on an error the old limit stays
}

/// The licences of the libraries that the page uses.
pub const LICENCES: &str =
    concat!(include_str!("../page/licences.txt"), include_str!("../../../LICENSE-APACHE"));

/// Files of the page: path, type and content.
const FILES: [(&str, &str, &[u8]); 10] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_bytes!("../page/style.css")),
    ("/app.js", "text/javascript; charset=utf-8", include_bytes!("../page/app.js")),
    ("/charts.js", "text/javascript; charset=utf-8", include_bytes!("../page/charts.js")),
    ("/tables.js", "text/javascript; charset=utf-8", include_bytes!("../page/tables.js")),
    ("/dom.js", "text/javascript; charset=utf-8", include_bytes!("../page/dom.js")),
    ("/icon.svg", "image/svg+xml", include_bytes!("../page/icon.svg")),
    ("/licences.txt", "text/plain; charset=utf-8", LICENCES.as_bytes()),
    ("/echarts/index.js", "text/javascript; charset=utf-8", include_bytes!(env!("EPO_ECHARTS_ENTRY"))),
    (
        "/echarts/index-DlVyZyb_.js",
        "text/javascript; charset=utf-8",
        include_bytes!(env!("EPO_ECHARTS_LIBRARY")),
    ),
];

/// Paths that are answered with data.
const ROUTES: [&str; 8] = [
    "/api/overview",
    "/api/curves",
    "/api/curves.csv",
    "/api/runs.csv",
    "/api/settings",
    "/api/run",
    "/api/episodes",
    "/replay",
];

/// Returns the paths of all routes.
pub fn routes() -> Vec<&'static str> {
    FILES.iter().map(|file| file.0).chain(ROUTES).collect()
}

fn router(app: Arc<App>, sending: Sending) -> Router {
    let mut router = Router::new();
    for (path, kind, content) in FILES {
        router = router.route(path, get(move |ask: Ask| async move { ask.file(kind, content) }));
    }
    let [overview, curves, curves_csv, runs_csv, settings, run, episodes, replay] = ROUTES;
    router
        .route(
            overview,
            get(|ask: Ask, Query(q): Query<OverviewQuery>| async move {
                let version = ask.app.store.version();
                ask.json(version, move |app| Ok(view::overview(&app.store, &q))).await
            }),
        )
        .route(
            curves,
            get(|ask: Ask, Query(q): Query<CurvesQuery>| async move {
                let version = ask.app.store.task_version(&q.task);
                ask.json(version, move |app| Ok(curves::curves(&app.store, &q))).await
            }),
        )
        .route(
            curves_csv,
            get(|ask: Ask, Query(q): Query<CurvesQuery>| async move {
                ask.csv("curves.csv", move |app| curves::curves_csv(&app.store, &q)).await
            }),
        )
        .route(
            runs_csv,
            get(|ask: Ask, Query(q): Query<RunsQuery>| async move {
                ask.csv("runs.csv", move |app| view::runs_csv(&app.store, &q)).await
            }),
        )
        .route(
            settings,
            get(|ask: Ask, Query(q): Query<RunsQuery>| async move {
                let version = ask.app.store.task_version(&q.task);
                ask.json(version, move |app| Ok(view::settings(&app.store, &q))).await
            }),
        )
        .route(
            run,
            get(|ask: Ask, Query(q): Query<RunQuery>| async move {
                let version = ask.app.store.version();
                ask.json(version, move |app| {
                    view::run(&app.store, &q.run, app.replays.is_some()).ok_or_else(|| NO_RUN.to_owned())
                })
                .await
            }),
        )
        .route(
            episodes,
            get(|ask: Ask, Query(q): Query<EpisodesQuery>| async move {
                let version = ask.app.store.version();
                ask.json(version, move |app| find_episodes(app, &q)).await
            }),
        )
        .route(replay, get(|ask: Ask, Query(q): Query<ReplayQuery>| async move { ask.replay(q).await }))
        .fallback(|| async { (StatusCode::NOT_FOUND, "There is no such page.") })
        .layer(middleware::from_fn_with_state(app.clone(), check))
        .layer(Extension(sending))
        .with_state(app)
}

const NO_RUN: &str = "There is no such run. It may have been deleted.";

/// Refuses requests that [`Guard`] does not accept, and adds the headers of every answer.
async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let guard = app.guard.check(request.method(), request.headers(), request.uri().path(), &query);
    let mut response = match guard {
        Ok(()) => {
            app.store.ask();
            next.run(request).await
        }
        Err(refusal) => (refusal.0, refusal.1).into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // a replay has set its own
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    if let Some(token) = app.token.as_ref().filter(|_| query.split('&').any(|p| p.starts_with("token="))) {
        // the page asks for its files and data without the token in the address
        let cookie = format!("{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            headers.insert(header::SET_COOKIE, cookie);
        }
    }
    response
}

/// One request: the shared state, and the data that its answer needs.
struct Ask {
    app: Arc<App>,
    sending: Sending,
    /// Path and query.
    what: String,
    /// ETag that the client has.
    has: Option<String>,
}

impl axum::extract::FromRequestParts<Arc<App>> for Ask {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        app: &Arc<App>,
    ) -> Result<Self, Self::Rejection> {
        let sending = parts.extensions.get::<Sending>().cloned().unwrap_or_default();
        let has = parts.headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let what = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        Ok(Self { app: app.clone(), sending, what, has })
    }
}

fn hash_of(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

impl Ask {
    fn answer(&self, kind: &'static str, etag: Option<&str>, bytes: Bytes) -> Response {
        let Some(body) = answer::body(bytes, &self.app.budget, &self.sending) else {
            let headers = [(header::RETRY_AFTER, "1")];
            return (StatusCode::SERVICE_UNAVAILABLE, headers, "Too many answers are being sent.")
                .into_response();
        };
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            headers.insert(header::ETAG, etag);
        }
        response
    }

    fn not_modified(&self, etag: &str) -> Option<Response> {
        (self.has.as_deref() == Some(etag))
            .then(|| (StatusCode::NOT_MODIFIED, [(header::ETAG, etag.to_owned())]).into_response())
    }

    fn file(self, kind: &'static str, content: &'static [u8]) -> Response {
        let etag = format!("\"{:016x}\"", hash_of((self.app.start, kind, content.len())));
        self.not_modified(&etag)
            .unwrap_or_else(|| self.answer(kind, Some(&etag), Bytes::from_static(content)))
    }

    /// Computes an answer on a thread that may wait for files.
    async fn work<T: Send + 'static>(&self, make: impl FnOnce(&App) -> T + Send + 'static) -> Option<T> {
        self.limited(&self.app.work, make).await
    }

    /// Computes an answer once `limit` has a place for it.
    async fn limited<T: Send + 'static>(
        &self,
        limit: &Semaphore,
        make: impl FnOnce(&App) -> T + Send + 'static,
    ) -> Option<T> {
        let _permit = limit.acquire().await.ok()?;
        let app = self.app.clone();
        tokio::task::spawn_blocking(move || make(&app)).await.ok()
    }

    /// Answers with JSON. A client that has the answer for `version` already is told so.
    async fn json(
        self,
        version: u64,
        make: impl FnOnce(&App) -> Result<serde_json::Value, String> + Send + 'static,
    ) -> Response {
        let key = hash_of((self.app.start, version, self.app.store.loading(), &self.what));
        let etag = format!("\"{key:016x}\"");
        if let Some(response) = self.not_modified(&etag) {
            return response;
        }
        let kind = "application/json";
        let kept = move |app: &App| {
            let kept = app.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.iter().find(|(k, _)| *k == key).map(|(_, bytes)| bytes.clone())
        };
        if let Some(bytes) = kept(&self.app) {
            return self.answer(kind, Some(&etag), bytes);
        }
        let made = self
            .work(move |app| {
                // many clients may have waited for the same answer
                kept(app).map_or_else(
                    || make(app).map(|value| (Bytes::from(value.to_string()), true)),
                    |bytes| Ok((bytes, false)),
                )
            })
            .await;
        match made {
            Some(Ok((bytes, new))) => {
                if new {
                    let mut kept = self.app.kept.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.push_back((key, bytes.clone()));
                    if kept.len() > KEPT {
                        kept.pop_front();
                    }
                }
                self.answer(kind, Some(&etag), bytes)
            }
            Some(Err(message)) => (StatusCode::NOT_FOUND, message).into_response(),
            None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    async fn csv(self, name: &str, make: impl FnOnce(&App) -> String + Send + 'static) -> Response {
        let Some(text) = self.work(make).await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let mut response = self.answer("text/csv; charset=utf-8", None, text.into());
        if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
            response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
        }
        response
    }

    async fn replay(self, query: ReplayQuery) -> Response {
        let made = self
            .limited(&self.app.replaying, move |app| {
                let replays = app.replays.as_ref().ok_or("This build of the dashboard makes no replays.")?;
                let table = app.store.table();
                let run = table.by_id.get(&query.run).map(|&i| &table.runs[i]).ok_or(NO_RUN)?;
                let (folder, problem) = {
                    let run = read(run);
                    (run.folder.clone(), run.problem.clone())
                };
                problem.map_or(Ok(()), |problem| Err(format!("The run cannot be replayed: {problem}")))?;
                folder.check_for_replay()?;
                let episode = match query.episode {
                    Some(row) => {
                        let found = app.episodes.get(&query.run, &folder, row)?;
                        Some(found.ok_or("The run has no such episode.")?)
                    }
                    None => None,
                };
                let policy = format!("{SANDBOX}; {}", replays.content_security_policy());
                let policy = HeaderValue::from_str(&policy).map_err(|e| e.to_string())?;
                Ok((replays.replay(&folder.dir, episode.as_ref())?, policy))
            })
            .await;
        match made {
            Some(Ok((page, policy))) => {
                let mut response = self.answer("text/html; charset=utf-8", None, page.into());
                response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
                response
            }
            Some(Err(message)) => {
                let message: String = message;
                (StatusCode::NOT_FOUND, message).into_response()
            }
            None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// Query of `/api/run`.
#[derive(Debug, Deserialize)]
struct RunQuery {
    run: String,
}

/// Query of `/replay`.
#[derive(Debug, Deserialize)]
struct ReplayQuery {
    run: String,
    /// Row of `episodes.csv`, from 1; without it, the costliest episodes of an evaluation are shown.
    episode: Option<u64>,
}

/// Query of `/api/episodes`.
#[derive(Debug, Deserialize)]
struct EpisodesQuery {
    /// Id of a run. If there is no such run, `group` is used.
    #[serde(default)]
    run: String,
    #[serde(default)]
    group: String,
    /// Number of environment steps within the epoch.
    steps: Option<f64>,
    /// Hours of training within the epoch. Used if `steps` is not given.
    hours: Option<f64>,
    /// Filter of the runs of a group.
    #[serde(default)]
    q: String,
}

/// Returns the number of epochs that were finished before the one in which the episode ended. A checkpoint with this
/// number holds the policy of that epoch, so the episode can be replayed exactly.
fn epochs_before(episode: &Episode, steps_per_epoch: f64) -> u64 {
    ((episode.step - 1.0) / steps_per_epoch).max(0.0) as u64
}

/// Where the replays of a run get the actions of its episodes from.
struct ActionSources {
    /// Numbers of finished epochs in the checkpoints.
    checkpoints: Vec<u64>,
    steps_per_epoch: Option<f64>,
    /// The file with the policies of the epochs.
    policies: Option<File>,
}

impl ActionSources {
    fn new(folder: &Folder, steps_per_epoch: Option<f64>) -> Self {
        let policies = folder.open(policies::FILE).ok().flatten().map(|(file, _)| file);
        Self { checkpoints: folder.checkpoints(), steps_per_epoch, policies }
    }

    /// Returns `checkpoint` or `recorded` if the episode can be replayed exactly, otherwise `policy`.
    fn of(&self, episode: &Episode) -> &'static str {
        let before = self.steps_per_epoch.map(|length| epochs_before(episode, length));
        if before.is_some_and(|before| self.checkpoints.contains(&before)) {
            return "checkpoint";
        }
        let policies = self.policies.as_ref().and_then(|file| Policies::open(file).ok().flatten());
        let recorded = policies.is_some_and(|policies| {
            // a number that is not valid becomes 0, and no episode has 0 steps
            policies.of_episode(episode.step as u64, episode.length as u64).is_ok_and(|found| found.is_some())
        });
        if recorded { "recorded" } else { "policy" }
    }
}

/// Episodes of the epoch that contains a number of steps, in one run or in all runs of a group, the costliest first.
fn find_episodes(app: &App, query: &EpisodesQuery) -> Result<serde_json::Value, String> {
    let table = app.store.table();
    let members: Vec<usize> = match table.by_id.get(&query.run) {
        Some(&i) => vec![i],
        None => {
            let group = table.groups.iter().find(|g| g.id == query.group).ok_or(NO_RUN)?;
            let filter = Filter::parse(&query.q);
            let keeps = |i: &usize| filter.keeps(&read(&table.runs[*i]), &group.label.name);
            group.runs.iter().copied().filter(keeps).collect()
        }
    };
    let (mut rows, mut problems, mut epochs) = (Vec::new(), Vec::new(), Vec::new());
    let mut searched = Vec::new();
    for &i in members.iter().take(MOST_RUNS_SEARCHED) {
        let (id, seed, folder, epoch, length) = {
            let run = read(&table.runs[i]);
            let seed = run.identity.as_ref().map_or(0, |i| i.seed);
            let epoch = run.epoch_at(query.steps, query.hours);
            (run.id.clone(), seed, run.folder.clone(), epoch, run.steps_per_epoch())
        };
        let Some((epoch, from, to)) = epoch else { continue };
        epochs.push(epoch);
        match app.episodes.find(&id, &folder, from, to) {
            Ok(found) => rows.extend(found.into_iter().map(|episode| (searched.len(), seed, episode))),
            Err(e) => problems.push(e),
        }
        searched.push((id, folder, length));
    }
    problems.sort();
    problems.dedup();
    rows.sort_by(|a, b| b.2.cost.total_cmp(&a.2.cost).then(a.1.cmp(&b.1)).then(a.2.row.cmp(&b.2.row)));
    let total = rows.len();
    let mut sources = BTreeMap::new(); // only of runs whose episodes are listed
    let rows = rows.into_iter().take(MOST_EPISODES).map(|(i, seed, episode)| {
        let (run, folder, length) = &searched[i];
        let actions = sources.entry(i).or_insert_with(|| ActionSources::new(folder, *length)).of(&episode);
        serde_json::json!({"run": run, "seed": seed, "actions": actions, "episode": episode})
    });
    Ok(serde_json::json!({
        "epochs": [epochs.iter().min(), epochs.iter().max()],
        "runs": epochs.len(),
        "total": total,
        "replays": app.replays.is_some(),
        "problems": problems,
        "episodes": rows.collect::<Vec<_>>(),
    }))
}
