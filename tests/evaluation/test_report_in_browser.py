"""The report in a real Chromium: tables sort, curves can be read off, nothing is fetched, names stay text."""

import base64
import json

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

import partt
from partt.evaluation.jets import scores_from_arrays
from toy_scores import random_scores

EVIL = "<script>document.title='hacked'</script>"
CLASSES = ("QCD", EVIL, "a&b $x_1$")
SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")

    def scores(seed, sharpness):
        probabilities, labels = random_scores(3000, seed, CLASSES, sharpness)
        return scores_from_arrays(CLASSES, probabilities, labels)

    models = {"worse": scores(1, 1.0), "<b>best</b>": scores(2, 2.0)}
    partt.evaluate(scores(0, 1.5), name=EVIL, compare=models, out=folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(chromium_programs, page):
    program, driver_program = chromium_programs
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_program))
    driver.get(page.as_uri())
    yield driver
    driver.quit()


def column(browser, table: str, number: int) -> list[str]:
    cells = browser.find_elements(By.CSS_SELECTOR, f"#{table} tbody tr > :nth-child({number})")
    return [cell.text.splitlines()[0] for cell in cells]


def test_tables_sort(browser):
    heading = browser.find_element(By.CSS_SELECTOR, "#results thead tr:last-child th:nth-child(2)")
    heading.click()
    accuracies = [float(text) for text in column(browser, "results", 2)]
    assert accuracies == sorted(accuracies)
    assert column(browser, "results", 1) == ["worse", EVIL, "<b>best</b>"]
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.click()
    assert column(browser, "results", 1) == ["<b>best</b>", EVIL, "worse"]
    names = browser.find_element(By.CSS_SELECTOR, "#working-points thead th:nth-child(1)")
    names.click()
    assert column(browser, "working-points", 1) == sorted(column(browser, "working-points", 1), key=str.lower)


def test_pointing_at_a_curve_reads_it(browser):
    picture = browser.find_element(By.CSS_SELECTOR, "#roc .picture")
    tip = picture.find_element(By.CSS_SELECTOR, ".tip")
    assert not tip.is_displayed()
    (panel, *_) = json.loads(browser.find_element(By.ID, "roc").get_attribute("data-hover"))
    curve = panel["curves"][0]
    point = next(point for point in curve["points"] if point[0] == 0.9)
    image = picture.find_element(By.TAG_NAME, "img")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", image)
    place = browser.execute_script(
        """
        const [panel, point, image] = arguments, [left, top, right, bottom] = panel.box;
        const x = (point[0] - panel.x[0]) / (panel.x[1] - panel.x[0]);
        const y = Math.log(point[1] / panel.y[0]) / Math.log(panel.y[1] / panel.y[0]);
        return [image.width * (left + x * (right - left) - .5), image.height * (bottom - y * (bottom - top) - .5)];
        """,
        panel,
        point,
        image,
    )
    ActionChains(browser).move_to_element_with_offset(image, *map(round, place)).perform()
    assert tip.is_displayed()
    label, efficiency, rejection, threshold, jets = tip.text.splitlines()
    assert label == curve["label"] == EVIL
    assert float(efficiency.removeprefix("ε_S = ")) == pytest.approx(point[0], abs=0.011)
    assert float(rejection.removeprefix("1/ε_B = ")) == pytest.approx(point[1], rel=0.1)
    assert float(threshold.removeprefix("threshold ")) == pytest.approx(point[2], abs=0.05)
    assert jets.endswith(" background jets")
    ActionChains(browser).move_to_element(browser.find_element(By.TAG_NAME, "h1")).perform()
    assert not tip.is_displayed()


def test_models_switch_in_every_section(browser):
    buttons = browser.find_elements(By.CSS_SELECTOR, "nav.models button")
    assert [button.text for button in buttons] == [EVIL, "worse", "<b>best</b>"]
    for button in [*buttons[1:], buttons[0]]:
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
        button.click()
        parts = browser.find_elements(By.CSS_SELECTOR, "[data-model]")
        shown = {part.get_attribute("data-model") for part in parts if part.is_displayed()}
        assert shown == {button.text}
        titles = [part.find_element(By.CSS_SELECTOR, "h2, h3").text for part in parts if part.is_displayed()]
        for start in (
            "Discriminants",
            "Scores",
            "Confusion",
            "Calibration",
            "Working points",
            "What was evaluated",
        ):
            assert any(title.startswith(start) for title in titles)


def test_names_stay_text(browser):
    assert browser.find_element(By.TAG_NAME, "h1").text == EVIL
    assert browser.title == f"{EVIL}: evaluation"
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 1
    assert not browser.find_elements(By.TAG_NAME, "b")


def test_it_prints(browser):
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_nothing_is_fetched_and_nothing_complains(browser, page):
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert page.as_uri() in requests
    assert {url.partition(":")[0] for url in requests} <= {"file", "data"}
    assert {url for url in requests if url.startswith("file:")} == {page.as_uri()}


def test_the_script_stays_short():
    from importlib import resources

    script = resources.files("partt.evaluation").joinpath("page/report.js").read_text()
    assert len(script.splitlines()) < 100
