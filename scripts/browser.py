"""JupyterLab as a user sees it: Debian's chromium, driven by Selenium, on a notebook.

For the Python that has jupyterlab and selenium; BUILD names the built programs, PYTHON the
interpreter of the kernel and of the ranks.
"""

import base64
import contextlib
import glob
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time

from selenium import webdriver
from selenium.common import exceptions
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, os.environ.get("BUILD") or "build")
PYTHON = os.environ.get("PYTHON") or os.path.join(ROOT, ".venv/bin/python")
WIDTH, HEIGHT = 900, 840
PICTURE_MAX = 300_000  # bytes: they lie in the repository
PATIENCE_S = 90
END_S = 20
TAKEN_S = 1  # after which a cell that was sent to the kernel has its star
IDLE = ".jp-NotebookPanel-toolbar .jp-Notebook-ExecutionIndicator[data-status=idle]"
# What a page that is just being drawn answers.
NOT_YET = (
    exceptions.StaleElementReferenceException,
    exceptions.ElementNotInteractableException,
    exceptions.ElementClickInterceptedException,
    exceptions.NoSuchElementException,
    IndexError,  # of the elements that were found so far
)

# Settings of JupyterLab: no questions, no news, and all cells drawn though they are out of sight.
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


def write_json(path, value):
    """Makes a file and the directories above it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def wait(what, condition):
    """The first true value of condition(). Raises TimeoutError that says what was waited for."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(*NOT_YET):
            if value := condition():
                return value
        time.sleep(0.02)
    raise TimeoutError(f"not within {PATIENCE_S} s: {what}")


def prepare(home, name, sources, files=()):
    """What JupyterLab finds in its home: the notebook, a kernel that runs PYTHON, the settings.

    files: files to lie beside the notebook.
    """
    kernel = {"name": "ddip", "display_name": "Python 3 (ddip)", "language": "python"}
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    cells = [{**code, "id": f"cell-{i}", "source": source} for i, source in enumerate(sources)]
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    write_json(f"{home}/work/{name}.ipynb", {**notebook, "nbformat_minor": 5})
    # under another name, so that no path of this machine is to be seen in a traceback
    os.symlink(os.path.dirname(os.path.dirname(os.path.abspath(PYTHON))), f"{home}/venv")
    python = f"{home}/venv/bin/{os.path.basename(PYTHON)}"
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    write_json(f"{home}/data/kernels/ddip/kernel.json", {**kernel, "argv": argv})
    for setting, values in SETTINGS.items():
        path = f"{home}/config/lab/user-settings/@jupyterlab/{setting}.jupyterlab-settings"
        write_json(path, values)
    for path in files:
        os.symlink(path, f"{home}/work/{os.path.basename(path)}")


@contextlib.contextmanager
def jupyterlab(home, token):
    """Runs a server on loopback, at a port that it chooses. Gives its URL."""
    environment = {
        **os.environ,
        "HOME": home,
        "JUPYTER_CONFIG_DIR": f"{home}/config",
        "JUPYTER_DATA_DIR": f"{home}/data",
        "JUPYTER_RUNTIME_DIR": f"{home}/run",
        "JUPYTER_TOKEN": token,
        "IPYTHONDIR": f"{home}/ipython",
        "PYTHONPATH": os.path.join(ROOT, "magics"),
        "DDIPFS": os.path.join(BUILD, "ddipfs"),
        "DDIP_MOUNT": f"{home}/mnt",
        "DDIP_STATE": home,
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1"]
    command += ["--port=0", f"--ServerApp.root_dir={home}/work"]
    command += ["--allow-root"] if os.geteuid() == 0 else []
    with open(f"{home}/lab.log", "w+", encoding="utf-8") as log:
        server = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield wait("JupyterLab's address", lambda: address(server, home))
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read())
            raise
        finally:
            end(server)


def end(server):
    """Ends JupyterLab, which ends its kernels; one that cannot is killed, and they notice."""
    server.terminate()
    try:
        server.wait(END_S)
    except subprocess.TimeoutExpired:
        print(f"JupyterLab did not end within {END_S} s of SIGTERM: killed", file=sys.stderr)
        server.kill()
        server.wait()


def address(server, home):
    """The URL of the server, None if it is not there yet."""
    if server.poll() is not None:
        raise RuntimeError(f"JupyterLab ended with status {server.returncode}")
    for path in glob.glob(f"{home}/run/jpserver-*.json"):
        with open(path, encoding="utf-8") as file, contextlib.suppress(json.JSONDecodeError):
            return json.load(file)["url"]  # half written: at the next look
    return None


@contextlib.contextmanager
def browser(home):
    """Debian's chromium without a screen."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for word in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"):
        options.add_argument(word)
    options.add_argument(f"--user-data-dir={home}/chromium")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # it does not start for root otherwise
    driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    try:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1.25, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield driver
    finally:
        driver.quit()


class Page:
    """The notebook as the user sees it."""

    def __init__(self, driver, folder):
        self._driver = driver
        self._folder = folder

    def open(self, url):
        """Opens the notebook and waits until its kernel is ready."""
        self._driver.get(url)
        wait("the notebook with a kernel", lambda: self._all(IDLE) and self.cells())

    def _all(self, selector):
        return self._driver.find_elements(By.CSS_SELECTOR, selector)

    def cells(self):
        """The code cells."""
        return self._all(".jp-Notebook .jp-CodeCell")

    def start(self, number):
        """Clicks into a cell and presses Shift+Enter, again if the kernel was not there yet."""
        wait(f"cell {number} is taken by the kernel", lambda: self._press(number))

    def _press(self, number):
        wait(f"cell {number} takes a click", lambda: self._click_into(number))
        keys = ActionChains(self._driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER)
        keys.key_up(Keys.SHIFT).perform()
        time.sleep(TAKEN_S)
        prompt = self.cells()[number].find_element(By.CSS_SELECTOR, ".jp-InputArea-prompt")
        return re.fullmatch(r"\[[\d*]+\]:", prompt.text) is not None

    def _click_into(self, number):
        editor = self.cells()[number].find_element(By.CSS_SELECTOR, ".cm-content")
        self._driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", editor)
        editor.click()
        return self.cells()[number].find_elements(By.CSS_SELECTOR, ".cm-focused")

    def is_done(self, number):
        """True if the cell has run: `[3]:` beside it, not `[*]:`."""
        prompt = self.cells()[number].find_element(By.CSS_SELECTOR, ".jp-InputArea-prompt")
        return re.fullmatch(r"\[\d+\]:", prompt.text) is not None

    def number(self, number):
        """What a cell that has been run is numbered by the kernel."""
        prompt = self.cells()[number].find_element(By.CSS_SELECTOR, ".jp-InputArea-prompt")
        return int(prompt.text.strip("[]:"))

    def output(self, number):
        """The text below a cell."""
        area = self.cells()[number].find_element(By.CSS_SELECTOR, ".jp-OutputArea")
        return area.text

    def run(self, number):
        """Runs a cell to its end. Returns its text; raises RuntimeError if it failed."""
        self.start(number)
        wait(f"the end of cell {number}", lambda: self.is_done(number))
        text = self.output(number)
        if "Traceback" in text or "UsageError" in text:
            raise RuntimeError(f"cell {number} failed:\n{text}")
        return text

    def picture(self, number):
        """The `src` of the figure below a cell, None: none yet."""
        found = self.cells()[number].find_elements(By.CSS_SELECTOR, ".jp-RenderedImage img")
        return found[-1].get_attribute("src") if found else None

    def stop(self):
        """Presses the stop button of the toolbar."""
        (button,) = self._all('.jp-NotebookPanel-toolbar [data-jp-item-name="interrupt"] jp-button')
        button.click()

    def take(self, path, above, block):
        """Takes a picture, with a cell at the start or end of what is seen."""
        cell = self.cells()[above]
        self._driver.execute_script(f"arguments[0].scrollIntoView({{block: '{block}'}})", cell)
        shot = self._driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        data = base64.b64decode(shot["data"])
        if len(data) > PICTURE_MAX:
            raise RuntimeError(f"{path} would have {len(data)} bytes, more than {PICTURE_MAX}")
        with open(path, "wb") as file:
            file.write(data)

    def write(self, name):
        """Makes an empty file beside the notebook."""
        with open(os.path.join(self._folder, name), "w", encoding="utf-8"):
            pass

    def reload(self):
        """Loads the page again, whatever it has not saved."""
        self._driver.refresh()
        wait("the notebook again", self.cells)

    def restart(self):
        """Kernel > Restart Kernel…, and yes."""
        (button,) = self._all('.jp-NotebookPanel-toolbar [data-jp-item-name="restart"] jp-button')
        button.click()
        wait("the question", lambda: self._all(".jp-Dialog .jp-mod-accept"))[0].click()
        wait("a kernel", lambda: self._all(IDLE))

    def tabs(self, number):
        """The title of each tab below a cell that runs."""
        found = self.cells()[number].find_elements(By.CSS_SELECTOR, ".widget-tab .lm-TabBar-tab")
        return [each.text for each in found]

    def _ended_tabs(self, number):
        return self.cells()[number].find_elements(By.CSS_SELECTOR, ".ddip-tabs > label")

    def ended_tabs(self, number):
        """(title, colour) of what takes the place of each tab at the end of a cell."""
        found = self._ended_tabs(number)
        return [(each.text, each.value_of_css_property("color")) for each in found]

    def below_tabs(self, number):
        """What stands below the tabs of a kernel that is gone; None: nothing."""
        (tabs,) = self.cells()[number].find_elements(
            By.CSS_SELECTOR, ".jp-OutputArea .widget-vbox:has(> .widget-tab)"
        )
        script = "return getComputedStyle(arguments[0], '::after').content"
        said = self._driver.execute_script(script, tabs)
        return None if said == "none" else said.strip('"')

    def choose(self, number, tab):
        """Clicks on a tab below a cell that has ended."""
        self._ended_tabs(number)[tab].click()

    def save(self):
        """Saves the notebook, and waits until it is saved."""
        (path,) = glob.glob(f"{self._folder}/*.ipynb")
        before = os.stat(path).st_mtime_ns
        keys = ActionChains(self._driver).key_down(Keys.CONTROL).send_keys("s")
        keys.key_up(Keys.CONTROL).perform()
        wait("the saved notebook", lambda: os.stat(path).st_mtime_ns != before)


@contextlib.contextmanager
def page(name, sources, files=()):
    """The Page of a new notebook with these cells, whose mount is removed afterwards."""
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="ddip-browser.") as home:
        prepare(home, name, sources, files)
        try:
            with jupyterlab(home, token) as url, browser(home) as driver:
                shown = Page(driver, f"{home}/work")
                shown.open(f"{url}doc/tree/{name}.ipynb?token={token}")
                yield shown
        finally:
            if os.path.ismount(f"{home}/mnt"):
                subprocess.run([os.path.join(BUILD, "ddip"), "umount", f"{home}/mnt"], check=True)
