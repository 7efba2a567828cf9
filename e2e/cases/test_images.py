"""The images as the engine holds them: the same when built again, and of nothing superfluous."""

import pytest

from environments import serviceimages
from environments.serviceimages import SERVICES, Image

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def built() -> None:
    """All images, in an engine; no cluster is needed."""
    serviceimages.ensure()


@pytest.mark.usefixtures("built")
def test_an_image_that_is_built_again_is_the_same_image() -> None:
    """The layer with the workspace's own code is made anew, and the image has its id again."""
    image = SERVICES[-1]
    assert serviceimages.identity_built_again(image) == serviceimages.identity(image)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("image", SERVICES)
def test_nothing_in_an_image_installs_or_builds(image: Image) -> None:
    """A service's image has no package manager, no pip, no perl and no compiler."""
    look = "python3 -c 'import pip' || python3 -c 'import ensurepip'"
    assert not serviceimages.succeeds_in(image, look)
    quiet = 'test -z "$(command -v apt-get dpkg perl gcc pip pip3)"'
    assert serviceimages.succeeds_in(image, quiet)
