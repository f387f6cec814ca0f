//! A headless Chromium, controlled through chromedriver.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

/// Timeout for the start of chromedriver and for conditions of a page.
const PATIENCE: Duration = Duration::from_secs(60);

/// The driver's process, killed when dropped.
#[derive(Debug)]
struct Driver {
    process: Child,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A browser with one page.
#[derive(Debug)]
pub(crate) struct Browser {
    client: Client,
    // Dropped in this order: the driver, then its folder.
    _driver: Driver,
    _folder: TempDir,
}

/// A command specific to chromedriver.
#[derive(Debug)]
struct Extension {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}

impl Browser {
    /// Starts chromedriver, and Chromium with a new and empty profile.
    pub(crate) async fn start() -> Result<Self> {
        let folder = TempDir::new()?;
        let (driver, port) = start_driver(folder.path())?;
        let profile = folder.path().join("profile");
        let arguments = [
            "--headless".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-quic".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--user-data-dir={}", profile.display()),
        ];
        let capabilities = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        let Value::Object(capabilities) = capabilities else { bail!("capabilities are an object") };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .context("chromedriver starts no Chromium")?;
        Ok(Self { client, _driver: driver, _folder: folder })
    }

    pub(crate) async fn close(self) -> Result<()> {
        Ok(self.client.close().await?)
    }

    /// Opens a file in a window of this width, as a phone or as a desktop.
    pub(crate) async fn open(&self, page: &Path, width: u32) -> Result<()> {
        self.resize(width).await?;
        let url = Url::from_file_path(page)
            .map_err(|()| anyhow::anyhow!("{} is no absolute path", page.display()))?;
        // Not by a script: a page may not navigate to a file.
        self.cdp("Page.navigate", json!({ "url": url.as_str() })).await?;
        self.wait("document.readyState === 'complete' && window.weftReport !== undefined")
            .await
            .with_context(|| format!("{} does not load", page.display()))
    }

    /// Sets the page's width.
    pub(crate) async fn resize(&self, width: u32) -> Result<()> {
        let phone = width < 600;
        let height = if phone { 844 } else { 900 };
        let scale = if phone { 2 } else { 1 };
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            json!({
                "width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone,
            }),
        )
        .await?;
        Ok(())
    }

    /// Runs a script and returns what it returns.
    pub(crate) async fn script(&self, script: &str, arguments: Vec<Value>) -> Result<Value> {
        Ok(self.client.execute(script, arguments).await?)
    }

    /// The value of an expression.
    pub(crate) async fn value(&self, expression: &str) -> Result<Value> {
        self.script(&format!("return {expression};"), Vec::new()).await
    }

    /// Waits until an expression is true.
    pub(crate) async fn wait(&self, expression: &str) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            // While a page is loading scripts fail.
            if self.value(expression).await.is_ok_and(|value| value == true) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("not true within {} s: {expression}", PATIENCE.as_secs())
    }

    /// A command of the DevTools protocol.
    pub(crate) async fn cdp(&self, command: &str, parameters: Value) -> Result<Value> {
        let body = json!({ "cmd": command, "params": parameters });
        let command = Extension { path: "goog/cdp/execute", body };
        Ok(self.client.issue_cmd(command).await?)
    }

    /// The log entries since the last call.
    pub(crate) async fn log(&self, kind: &str) -> Result<Vec<Value>> {
        let command = Extension { path: "se/log", body: json!({ "type": kind }) };
        match self.client.issue_cmd(command).await? {
            Value::Array(entries) => Ok(entries),
            other => bail!("a log is a list, not {other}"),
        }
    }

    /// Moves the mouse to a position in the window.
    pub(crate) async fn point_at(&self, x: f64, y: f64) -> Result<()> {
        let moved = json!({ "type": "mouseMoved", "x": x, "y": y });
        self.cdp("Input.dispatchMouseEvent", moved).await?;
        Ok(())
    }

    /// Clicks at a position in the window.
    pub(crate) async fn click(&self, x: f64, y: f64) -> Result<()> {
        self.point_at(x, y).await?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.cdp("Input.dispatchMouseEvent", event).await?;
        }
        Ok(())
    }

    /// Presses a key and releases it.
    pub(crate) async fn press(&self, key: &str, code: u32, text: &str) -> Result<()> {
        for kind in ["keyDown", "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text,
            });
            self.cdp("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    /// A screenshot of the whole page.
    pub(crate) async fn screenshot(&self, path: &Path) -> Result<()> {
        self.capture(json!({ "format": "png", "captureBeyondViewport": true }), path).await
    }

    /// A screenshot of this box of the page: left, top, width and height.
    pub(crate) async fn picture(&self, at: [f64; 4], path: &Path) -> Result<()> {
        let [x, y, width, height] = at;
        let clip = json!({ "x": x, "y": y, "width": width, "height": height, "scale": 1 });
        let parameters = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        self.capture(parameters, path).await
    }

    async fn capture(&self, parameters: Value, path: &Path) -> Result<()> {
        let answer = self.cdp("Page.captureScreenshot", parameters).await?;
        let data = answer["data"].as_str().context("a screenshot has no data")?;
        fs::write(path, STANDARD.decode(data)?)?;
        Ok(())
    }
}

fn start_driver(folder: &Path) -> Result<(Driver, u16)> {
    let log = folder.join("chromedriver.log");
    let process = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(File::create(&log)?)
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start chromedriver (Debian: apt-get install chromium chromium-driver)")?;
    let driver = Driver { process };
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let text = fs::read_to_string(&log)?;
        let told = text.split("started successfully on port ").nth(1);
        // With its full stop, so that the number is complete.
        if let Some((port, _)) = told.and_then(|rest| rest.split_once('.')) {
            return Ok((driver, port.parse()?));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("chromedriver reports no port: {}", fs::read_to_string(&log)?)
}
